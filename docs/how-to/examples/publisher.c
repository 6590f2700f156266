/*
 * A publisher without Python: what docs/protocol.md describes, in one file. It shows a pattern that
 * moves, in NV12, with each frame's number in it. One thread does everything, and never waits for a
 * subscriber. Comments that say "see" name sections of docs/protocol.md.
 *
 *     cc -std=c11 -O2 -DHOST -o publisher publisher.c
 *     cc -std=c11 -O2 -I/usr/local/cuda/include -o publisher publisher.c -l:libcuda.so.1
 *     ./publisher KEY [WIDTH HEIGHT FPS [FRAMES]]
 *
 * With -DHOST frames lie in host memory, else in the memory of the first GPU.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#ifndef HOST
#include <cuda.h>
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { MAJOR = 1, MINOR = 0, HEADER = 16, MAX_PACKET = 65536, MAX_NAME = 64 };
enum { HELLO = 1, WELCOME, EPOCH, PASSED, REFUSE, GOODBYE, QUERY, STATUS };
enum { NEWEST = 1, STRICT, NV12 = 1, DROP_OLDEST = 1, LIVE = 1, CLOSED = 3 };
enum { SLOTS = 6, LOCK_STRIDE = 256, MAX_SUBSCRIBERS = 256, MAX_PEERS = MAX_SUBSCRIBERS + 16 };
#define MILLISECONDS UINT64_C(1000000)
#define SECONDS (1000 * MILLISECONDS)

typedef _Atomic uint64_t word;
struct record { word seq, pts_ns, published_ns, reserved[5]; };
struct control {                                            /* see CONTROL BLOCK */
    word magic, epoch, state, published, dropped, last_publish_ns, reserved1[58];
    word seqs[64], completions[64], reserved2[64];
    struct record records[64];
    word reserved3[256];
};
_Static_assert(offsetof(struct control, completions) == 1024 && sizeof(struct control) == 8192
               && ATOMIC_LLONG_LOCK_FREE == 2, "as on the page, and words are written whole");

struct plane { uint64_t offset; uint32_t pitch; int width, height, unit; };  /* unit: bytes of one */
struct peer { int sock, wake; uint64_t since; struct ucred who; uint8_t mode, length; char name[MAX_NAME]; };
struct packet { uint8_t bytes[MAX_PACKET]; size_t length; };

static const char *key;
static int width = 1280, height = 720, control_fd;
static double fps = 30;
static uint64_t started_ns, arena_nbytes, slot_nbytes, next_seq = 1;
static uint64_t content[SLOTS];                             /* the frame in each slot, 0 for none */
static int newest = -1;
static uint8_t gpu_uuid[16];
static struct control *control;
static struct plane planes[2];
static struct peer peers[MAX_PEERS];                        /* the index is the subscriber's, too */
static struct packet out;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECONDS + (uint64_t)now.tv_nsec;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* --- Memory: see SHARED MEMORY ------------------------------------------------------------------- */

static void *sealed_memory(const char *name, size_t nbytes, int *fd)
{
    int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0 || fchmod(*fd, 0400) || (errno = posix_fallocate(*fd, 0, (off_t)nbytes)))
        die("cannot make %zu bytes of shared memory: %s", nbytes, strerror(errno));
    void *address = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (address == MAP_FAILED || fcntl(*fd, F_ADD_SEALS, seals))
        die("cannot map and seal shared memory: %s", strerror(errno));
    return address;
}

static int reopen_read_only(int fd)                         /* a description with locks of its own */
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

#ifdef HOST

enum { MEMORY_KIND = 1, COMPLETION = 1 };                  /* both HOST */
static int arena_fd;
static uint8_t *arena;

static void memory_open(void)
{
    arena_nbytes = SLOTS * slot_nbytes;
    arena = sealed_memory("cuframes:pixels", arena_nbytes, &arena_fd);
}

static int memory_export(void) { return reopen_read_only(arena_fd); }

static void memory_fill(uint64_t at, const struct plane *plane, int columns, int rows, unsigned value)
{
    for (uint8_t *row = arena + at; rows > 0; rows--, row += plane->pitch)
        if (plane->unit == 1)
            memset(row, (int)value, (size_t)columns);
        else
            for (int i = 0; i < columns; i++) {
                row[2 * i] = (uint8_t)value;
                row[2 * i + 1] = (uint8_t)(value >> 8);
            }
}

static void complete(int slot, uint64_t value)              /* the pixels are there already */
{
    atomic_store_explicit(&control->completions[slot], value, memory_order_release);
}

static void memory_close(void) {}

#else

enum { MEMORY_KIND = 2, COMPLETION = 2 };                  /* CUDA_VMM, GPU */
static CUmemGenericAllocationHandle allocation;
static CUdeviceptr arena, words;                            /* words: the control block, for the GPU */
static CUstream stream;
#define CU(call) cuda_check(call, #call)

static void cuda_check(CUresult status, const char *call)
{
    const char *name = NULL;
    if (status != CUDA_SUCCESS && cuGetErrorName(status, &name) != CUDA_SUCCESS)
        name = NULL;
    if (status != CUDA_SUCCESS)
        die("%.*s: %s (%d)", (int)strcspn(call, "("), call, name ? name : "error", (int)status);
}

static void memory_open(void)
{
    CUdevice device;
    CUcontext context;
    CUuuid uuid;
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
    CU(cuDeviceGetUuid(&uuid, device));
    memcpy(gpu_uuid, uuid.bytes, sizeof gpu_uuid);
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    CUmemAllocationProp kind;
    size_t granularity;
    memset(&kind, 0, sizeof kind);
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    kind.location.id = device;
    kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CU(cuMemGetAllocationGranularity(&granularity, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    arena_nbytes = (SLOTS * slot_nbytes + granularity - 1) / granularity * granularity;
    CUmemAccessDesc access = {.location = kind.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU(cuMemCreate(&allocation, arena_nbytes, &kind, 0));
    CU(cuMemAddressReserve(&arena, arena_nbytes, 0, 0, 0));
    CU(cuMemMap(arena, arena_nbytes, 0, allocation, 0));
    CU(cuMemSetAccess(arena, arena_nbytes, &access, 1));

    /* Lets the GPU write completion words into the control block. */
    CU(cuMemHostRegister(control, sizeof *control, CU_MEMHOSTREGISTER_DEVICEMAP));
    CU(cuMemHostGetDevicePointer(&words, control, 0));
}

static int memory_export(void)                              /* afresh for each subscriber */
{
    int fd;
    CUresult status = cuMemExportToShareableHandle(
        &fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return status == CUDA_SUCCESS ? fd : -1;
}

static void memory_fill(uint64_t at, const struct plane *plane, int columns, int rows, unsigned value)
{
    if (plane->unit == 1)
        CU(cuMemsetD2D8Async(arena + at, plane->pitch, (unsigned char)value, (size_t)columns,
                             (size_t)rows, stream));
    else
        CU(cuMemsetD2D16Async(arena + at, plane->pitch, (unsigned short)value, (size_t)columns,
                              (size_t)rows, stream));
}

static void complete(int slot, uint64_t value)              /* behind the work on the stream */
{
    CUdeviceptr at = words + offsetof(struct control, completions) + 8 * (unsigned)slot;
    CU(cuStreamWriteValue64(stream, at, value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

static void memory_close(void)                              /* the rest goes with the process */
{
    CU(cuStreamSynchronize(stream));
    CU(cuMemHostUnregister(control));
}

#endif

/* --- Packets: see PACKETS and MESSAGES ----------------------------------------------------------- */

static uint64_t load(const uint8_t *bytes, int nbytes)      /* little-endian */
{
    uint64_t value = 0;
    for (int i = nbytes; i-- > 0;)
        value = value << 8 | bytes[i];
    return value;
}

static void store(uint8_t *bytes, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
}

static void put(uint64_t value, int nbytes)                 /* the largest Status takes 21 KB */
{
    store(out.bytes + out.length, value, nbytes);
    out.length += (size_t)nbytes;
}

static void put_bytes(const void *bytes, size_t count)
{
    memcpy(out.bytes + out.length, bytes, count);
    out.length += count;
}

static void put_text(const char *text, size_t length)
{
    put(length, 2);
    put_bytes(text, length);
}

static void begin(unsigned type)
{
    out.length = 0;
    put_bytes("CFNB", 4);
    put(MAJOR, 1), put(MINOR, 1), put(type, 2), put(0, 8);  /* the sizes follow in send_packet */
}

static bool send_packet(int sock, const int *fds, size_t count)
{
    union { struct cmsghdr head; char room[CMSG_SPACE(2 * sizeof(int))]; } rights = {0};
    struct iovec data = {out.bytes, out.length};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    store(out.bytes + 8, out.length, 4);
    store(out.bytes + 12, count, 2);
    if (count) {
        message.msg_control = &rights;
        message.msg_controllen = CMSG_SPACE(count * sizeof *fds);
        rights.head.cmsg_len = CMSG_LEN(count * sizeof *fds);
        rights.head.cmsg_level = SOL_SOCKET;
        rights.head.cmsg_type = SCM_RIGHTS;
        memcpy(CMSG_DATA(&rights.head), fds, count * sizeof *fds);
    }
    return sendmsg(sock, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

static void put_ring(void)                                  /* see THE DESCRIPTION OF A RING */
{
    static const uint8_t bt709_limited[5] = {1, 0, 1, 1, 0};
    uint64_t rate;
    memcpy(&rate, &fps, sizeof rate);
    put(NV12, 4), put((unsigned)width, 4), put((unsigned)height, 4), put(rate, 8);
    put(DROP_OLDEST, 1), put(COMPLETION, 1), put_bytes(bt709_limited, sizeof bt709_limited);
    put(2, 2);                                              /* planes */
    for (int i = 0; i < 2; i++)
        put(planes[i].offset, 8), put(planes[i].pitch, 4);
    put(1, 2);                                              /* one arena, with a descriptor (flag 1) */
    put(MEMORY_KIND, 2), put(1, 2), put(arena_nbytes, 8), put_bytes(gpu_uuid, sizeof gpu_uuid);
    put(0, 4), put(0, 8), put(0, 2);                        /* linear, from the start, no handle */
    put(SLOTS, 2);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        put(0, 2), put(slot * slot_nbytes, 8);
}

/* --- Connections: see WHO MAY SAY WHAT WHEN ------------------------------------------------------- */

static void leave(struct peer *peer)
{
    close_fd(&peer->sock);
    close_fd(&peer->wake);
}

__attribute__((format(printf, 3, 4))) static void refuse(
    struct peer *peer, const char *reason, const char *format, ...)
{
    char text[256];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    begin(REFUSE);
    put_text(reason, strlen(reason));
    put_text(text, strlen(text));
    send_packet(peer->sock, NULL, 0);
    leave(peer);
}

static void welcome(struct peer *peer)
{
    int pair[2] = {-1, -1}, fds[2] = {-1, -1}, room = 4096;
    unsigned index = (unsigned)(peer - peers);
    if (index >= MAX_SUBSCRIBERS) {
        refuse(peer, "in-use", "stream %s has as many subscribers as it may", key);
        return;
    }
    if (!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair)) {
        fds[0] = reopen_read_only(control_fd);
        fds[1] = memory_export();
    }
    peer->wake = pair[0];
    if (fds[0] < 0 || fds[1] < 0) {
        refuse(peer, "in-use", "the publisher is short of descriptors");
    } else {
        setsockopt(peer->wake, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        begin(WELCOME);                                     /* the newest frame is the first */
        put((unsigned)getpid(), 4), put(index, 2), put(next_seq > 1 ? next_seq - 2 : 0, 8);
        put_text(key, strlen(key));
        bool sent = send_packet(peer->sock, &pair[1], 1);
        begin(EPOCH);
        put(1, 8), put(sizeof *control, 4);
        put_ring();
        if (!sent || !send_packet(peer->sock, fds, 2))
            leave(peer);
    }
    close_fd(&pair[1]);
    close_fd(&fds[0]);
    close_fd(&fds[1]);
}

static bool lock(int request, short kind, unsigned start, unsigned count)      /* see LOCKS */
{
    struct flock range = {.l_type = kind, .l_whence = SEEK_SET, .l_start = start, .l_len = count};
    return !fcntl(control_fd, request, &range) && (request == F_OFD_SETLK || range.l_type != F_UNLCK);
}

static void answer(struct peer *peer)
{
    unsigned count = 0;
    begin(STATUS);
    put((unsigned)getpid(), 4), put(1, 8), put(started_ns, 8), put(control->published, 8);
    put(control->dropped, 8), put(control->last_publish_ns, 8);
    put_text(key, strlen(key));
    put_ring();
    for (unsigned i = 0; i < MAX_SUBSCRIBERS; i++)
        count += peers[i].wake >= 0;
    put(count, 2);
    for (unsigned i = 0; i < MAX_SUBSCRIBERS; i++)
        if (peers[i].wake >= 0) {
            put(i, 2), put((unsigned)peers[i].who.pid, 4), put(peers[i].who.uid, 4);
            unsigned held = 0;
            for (unsigned slot = 0; slot < SLOTS; slot++)
                held += lock(F_OFD_GETLK, F_WRLCK, slot * LOCK_STRIDE + i, 1);
            put(peers[i].mode, 1), put(held, 2);
            put_text(peers[i].name, peers[i].length);
        }
    send_packet(peer->sock, NULL, 0);
    leave(peer);
}

/* Do what a message asks for; false if it is malformed or may not be said now. */
static bool handle(struct peer *peer, unsigned type, bool later, const uint8_t *body, size_t size)
{
    size_t known;                                           /* bytes that this version knows */
    switch (type) {
    case HELLO: known = size < 7 ? 7 : 7 + load(body + 5, 2); break;
    case PASSED: known = 8; break;
    case QUERY: known = 0; break;
    default: return false;
    }
    bool fresh = peer->wake < 0;
    if (fresh != (type != PASSED) || size < known || (size > known && !later))
        return false;
    if (type == PASSED)
        return true;                                        /* means nothing to DROP_OLDEST */
    if (peer->who.uid != 0 && peer->who.uid != geteuid()) {
        refuse(peer, "permission", "stream %s is open to user %u only", key, geteuid());
        return true;
    }
    if (type == QUERY) {
        answer(peer);
        return true;
    }
    peer->mode = body[4];
    peer->length = (uint8_t)(known - 7);
    if (known > 7 + MAX_NAME || peer->mode < NEWEST || peer->mode > STRICT)
        return false;
    for (int i = 0; i < peer->length; i++)                  /* what a Status says has to be UTF-8 */
        peer->name[i] = body[7 + i] < 0x80 ? (char)body[7 + i] : '?';
    welcome(peer);
    return true;
}

static void receive(struct peer *peer)
{
    static uint8_t in[MAX_PACKET];
    struct iovec data = {in, sizeof in};
    /* Without room for descriptors the kernel closes those that come, and sets MSG_CTRUNC. */
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    ssize_t got = recvmsg(peer->sock, &message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        leave(peer);
    else if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        refuse(peer, "protocol", "a packet has too many bytes, or descriptors");
    else if (got < HEADER || memcmp(in, "CFNB", 4))
        refuse(peer, "protocol", "a packet does not begin with the header of this protocol");
    else if (in[4] != MAJOR)
        refuse(peer, "protocol", "the other side speaks protocol %u.%u and this one %u.%u", in[4], in[5],
               MAJOR, MINOR);
    else if (load(in + 8, 4) != (size_t)got || load(in + 12, 2))
        refuse(peer, "protocol", "a packet's header does not say what came");
    else if (!handle(peer, (unsigned)load(in + 6, 2), in[5] > MINOR, in + HEADER, (size_t)got - HEADER))
        refuse(peer, "protocol", "a message of type %u is malformed, or may not be said now",
               (unsigned)load(in + 6, 2));
}

/* Take a connection in; false if there are no descriptors, or no memory, for it. */
static bool take_in(int listener, struct peer *peer)
{
    socklen_t size = sizeof peer->who;
    peer->sock = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (peer->sock < 0)
        return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    peer->since = now_ns();
    if (getsockopt(peer->sock, SOL_SOCKET, SO_PEERCRED, &peer->who, &size))
        leave(peer);
    return true;
}

/* Serve connections until a frame is due, at least once; false if the program is to end. */
static bool serve(int listener, int signals, uint64_t due)
{
    static uint64_t accept_again;
    struct pollfd ready[MAX_PEERS + 2];
    do {
        int vacant = -1, used = 0;
        uint64_t now = now_ns(), wait = due > now ? due - now : 0;
        for (int i = 0; i < MAX_PEERS; i++) {
            if (peers[i].sock >= 0 && peers[i].wake < 0 && now - peers[i].since > 5 * SECONDS)
                leave(&peers[i]);                           /* it has said nothing */
            if (peers[i].sock < 0 && vacant < 0)
                vacant = i;
            used = peers[i].sock < 0 ? used : i + 1;
            ready[i + 2] = (struct pollfd){peers[i].sock, POLLIN, 0};
        }
        ready[0] = (struct pollfd){signals, POLLIN, 0};
        ready[1] = (struct pollfd){vacant < 0 || now < accept_again ? -1 : listener, POLLIN, 0};
        struct timespec patience = {(time_t)(wait / SECONDS), (long)(wait % SECONDS)};
        ppoll(ready, (nfds_t)used + 2, &patience, NULL);
        for (int i = 0; i < used; i++)                      /* one packet each, then the clock again */
            if (ready[i + 2].revents)
                receive(&peers[i]);
        if (ready[1].revents && !take_in(listener, &peers[vacant]))
            accept_again = now + 200 * MILLISECONDS;        /* whoever waits stays in the queue */
        if (ready[0].revents)
            return false;
    } while (now_ns() < due);
    return true;
}

/* --- Frames: see WRITING A FRAME ------------------------------------------------------------------ */

static int acquire(void)
{
    for (unsigned tried = newest < 0 ? 0 : 1u << newest;;) {
        int slot = -1;
        for (int i = 0; i < SLOTS; i++)
            if (!(tried >> i & 1) && (slot < 0 || content[i] < content[slot]))
                slot = i;
        if (slot < 0)
            return -1;
        tried |= 1u << slot;
        uint64_t done = atomic_load_explicit(&control->completions[slot], memory_order_acquire);
        if (done == content[slot] && lock(F_OFD_SETLK, F_WRLCK, (unsigned)slot * LOCK_STRIDE, LOCK_STRIDE)) {
            control->seqs[slot] = 0;
            return slot;
        }
    }
}

static void publish(int slot, int64_t pts_ns)
{
    uint64_t seq = next_seq++, now = now_ns();
    content[slot] = seq;                                    /* each acquired slot is published here */
    newest = slot;
    complete(slot, seq);
    control->records[slot].seq = seq;
    control->records[slot].pts_ns = (uint64_t)pts_ns;
    control->records[slot].published_ns = now;
    lock(F_OFD_SETLK, F_UNLCK, (unsigned)slot * LOCK_STRIDE, LOCK_STRIDE);
    atomic_store_explicit(&control->seqs[slot], seq, memory_order_release);
    control->last_publish_ns = now;
    control->published++;
    for (int i = 0; i < MAX_SUBSCRIBERS; i++)
        if (peers[i].wake >= 0)
            send(peers[i].wake, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Fill a rectangle of both planes; x and y are even. This is what your own frames replace. */
static void rectangle(int slot, int x, int y, int columns, int rows, const uint8_t yuv[3])
{
    unsigned values[2] = {yuv[0], yuv[1] | (unsigned)yuv[2] << 8};
    for (int i = 0; i < 2; i++) {
        const struct plane *plane = &planes[i];
        int left = x >> i, top = y >> i, right = (x + columns + i) >> i, bottom = (y + rows + i) >> i;
        right = right < plane->width ? right : plane->width;
        bottom = bottom < plane->height ? bottom : plane->height;
        if (left >= right || top >= bottom)
            continue;
        uint64_t at = plane->offset + (uint64_t)top * plane->pitch + (uint64_t)(left * plane->unit);
        memory_fill((uint64_t)slot * slot_nbytes + at, plane, right - left, bottom - top, values[i]);
    }
}

/* Eight bars of colour, a white one that moves, and the number in 32 squares, the lowest bit first. */
static void draw(int slot, uint64_t number)
{
    static const uint8_t bars[8][3] = {                     /* 75 %, BT.709, limited range */
        {180, 128, 128}, {168, 44, 136}, {145, 147, 44}, {133, 63, 52},
        {63, 193, 204}, {51, 109, 212}, {28, 212, 120}, {16, 128, 128},
    };
    static const uint8_t black[3] = {16, 128, 128}, white[3] = {235, 128, 128};
    int bar = (width / 16 & ~1) + 2, square = width / 34 & ~1;
    for (int i = 0, x = 0, end; i < 8; i++, x = end) {
        end = i < 7 ? (width * (i + 1) / 8) & ~1 : width;
        rectangle(slot, x, 0, end - x, height, bars[i]);
    }
    rectangle(slot, (int)(number * 4 % (unsigned)width) & ~1, 0, bar, height, white);
    rectangle(slot, 0, 0, 34 * square, 3 * square, black);
    for (int i = 0; i < 32; i++)
        if (number >> i & 1)
            rectangle(slot, (i + 1) * square, square, square, square, white);
}

/* --- The socket: see SOCKET ----------------------------------------------------------------------- */

static bool usable(const char *dir)
{
    struct stat info;
    mkdir(dir, 0700);
    return !lstat(dir, &info) && S_ISDIR(info.st_mode) && !access(dir, W_OK | X_OK)
        && (info.st_uid == 0 || info.st_uid == geteuid())
        && (!(info.st_mode & (S_IWGRP | S_IWOTH)) || info.st_mode & S_ISVTX);
}

static void find_directory(char *dir, size_t size)
{
    const char *chosen = getenv("CUFRAMES_RUNTIME_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");
    if (chosen && *chosen) {
        snprintf(dir, size, "%s", chosen);
    } else {
        snprintf(dir, size, "/run/cuframes");
        if (!usable(dir) && xdg && *xdg)
            snprintf(dir, size, "%s/cuframes", xdg);
        if (!usable(dir))
            snprintf(dir, size, "/tmp/cuframes-%u", geteuid());
    }
    if (!usable(dir))
        die("%s is no directory of this user's or root's that others may not write to", dir);
}

static int lock_directory(const char *dir)                  /* close it to give the lock back */
{
    static char path[4096 + 32];
    snprintf(path, sizeof path, "%s/.lock-%u", dir, geteuid());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX))
        die("cannot lock %s: %s", path, strerror(errno));
    return fd;
}

static int claim(const char *dir, const struct sockaddr_un *at, struct stat *ours)
{
    struct stat info;
    int lock_fd = lock_directory(dir);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (!lstat(at->sun_path, &info)) {
        if (!S_ISSOCK(info.st_mode) || info.st_uid != geteuid())
            die("%s is in the way: it is no socket, or another user's", at->sun_path);
        int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (!connect(probe, (const void *)at, sizeof *at) || errno != ECONNREFUSED)
            die("stream %s is being published already, at %s", key, at->sun_path);
        close(probe);
        unlink(at->sun_path);                               /* its publisher died */
    }
    if (fchmod(sock, 0600) || bind(sock, (const void *)at, sizeof *at) || listen(sock, 256)
        || lstat(at->sun_path, ours))
        die("cannot listen at %s: %s", at->sun_path, strerror(errno));
    close(lock_fd);
    return sock;
}

static void give_up(const char *dir, const struct sockaddr_un *at, const struct stat *ours)
{
    struct stat info;
    int lock_fd = lock_directory(dir);
    if (!lstat(at->sun_path, &info) && info.st_dev == ours->st_dev && info.st_ino == ours->st_ino)
        unlink(at->sun_path);
    close(lock_fd);
}

/* --- All together --------------------------------------------------------------------------------- */

static void lay_out(void)                                   /* rows and slots where they like to be */
{
    uint64_t pitch = ((uint64_t)width + 256) / 256 * 256, rows = (uint64_t)height;
    planes[0] = (struct plane){0, (uint32_t)pitch, width, height, 1};
    planes[1] = (struct plane){pitch * rows, (uint32_t)pitch, (width + 1) / 2, (height + 1) / 2, 2};
    slot_nbytes = (pitch * (rows + (rows + 1) / 2) + 4095) / 4096 * 4096;
}

int main(int count, char **arguments)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    uint64_t frames = count > 5 ? strtoull(arguments[5], NULL, 10) : UINT64_MAX;
    if (count > 4) {
        width = atoi(arguments[2]);
        height = atoi(arguments[3]);
        fps = atof(arguments[4]);
    }
    if (count < 2 || count == 3 || count == 4 || count > 6 || width < 1 || width > 32768 || height < 1
        || height > 32768 || !(fps >= 1 && fps <= 1000))
        die("usage: %s KEY [WIDTH HEIGHT FPS [FRAMES]]", arguments[0]);
    key = arguments[1];
    if (!*key || strchr("._-", *key) || key[strspn(key, letters)] || strlen(key) > MAX_NAME)
        die("%s cannot name a stream", key);

    sigset_t ends;                                          /* read like any other descriptor */
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    int signals = signalfd(-1, &ends, SFD_NONBLOCK | SFD_CLOEXEC);

    static char dir[4096];
    struct stat ours;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    find_directory(dir, sizeof dir);
    if ((size_t)snprintf(at.sun_path, sizeof at.sun_path, "%s/%s.sock", dir, key) >= sizeof at.sun_path)
        die("%s/%s.sock is too long for a socket's path", dir, key);

    for (int i = 0; i < MAX_PEERS; i++)
        peers[i].sock = peers[i].wake = -1;
    started_ns = now_ns();
    uint64_t magic;
    memcpy(&magic, "CFNBCTL1", sizeof magic);
    lay_out();
    control = sealed_memory("cuframes:control", sizeof *control, &control_fd);
    control->epoch = 1;
    control->state = LIVE;
    control->magic = magic;
    memory_open();
    int listener = claim(dir, &at, &ours);
    printf("%s: %dx%d, %g frames/s, completion by %s\n", at.sun_path, width, height, fps,
           COMPLETION == 1 ? "CPU" : "GPU");
    fflush(stdout);

    uint64_t period = (uint64_t)((double)SECONDS / fps), due = now_ns();
    for (uint64_t done = 0; serve(listener, signals, due) && done < frames; done++) {
        int slot = acquire();
        if (slot < 0) {
            control->dropped++;                             /* every slot is being read */
        } else {
            int64_t pts_ns = (int64_t)now_ns();
            draw(slot, next_seq);
            publish(slot, pts_ns);
        }
        due += period;
        due = due + period < now_ns() ? now_ns() : due;     /* too slow: late frames are left out */
    }

    memory_close();
    close(listener);                                        /* see THE END */
    for (int i = 0; i < MAX_PEERS; i++) {
        begin(GOODBYE);
        put_text("the publisher ended", 19);
        if (peers[i].wake >= 0)
            send_packet(peers[i].sock, NULL, 0);
        leave(&peers[i]);
    }
    control->state = CLOSED;
    give_up(dir, &at, &ours);
    printf("%llu frames published, %llu dropped\n", (unsigned long long)control->published,
           (unsigned long long)control->dropped);
    return 0;
}
