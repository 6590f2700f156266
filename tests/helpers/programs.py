"""What other processes do in tests; each is started with `tests.helpers.children.child`.

Those that take `memory` work on GPUs as well.
"""

import contextlib
import gc
import json
import mmap
import os
import random
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import cuframes_nb as cf
from tests.helpers import frames
from tests.helpers.leaks import open_fds

__all__ = [
    "attach_as",
    "attach_in_namespaces",
    "attach_with_few_descriptors",
    "be_interrupted",
    "fork_and_die",
    "fork_with_everything",
    "hold",
    "kill_publishers",
    "kill_subscribers",
    "leave_everything_open",
    "publish_and_die",
    "publish_as",
    "publish_in_namespaces",
    "publish_until_told",
    "publish_with_few_descriptors",
    "read",
]


def _told(link, kind="stop"):
    """Return an event that is set once the parent says so, or leaves."""
    event = threading.Event()

    def hear():
        with contextlib.suppress(EOFError):
            link.hear(kind)
        event.set()

    threading.Thread(target=hear, daemon=True).start()
    return event


def _error(error):
    return {"code": error.code, "text": str(error), "name": type(error).__name__}


# --- Reading and publishing -----------------------------------------------------------------------


def read(link, key, *, mode="newest", hold=0.0, least=1):
    """Read and check frames until told to stop, at least `least`, each held for `hold` seconds."""
    stop = _told(link)
    torn, count = [], 0
    with cf.subscribe(key, mode, timeout=30) as sub:
        link.say("ready")
        while not stop.is_set() or count < least:
            try:
                frame = sub.next(timeout=0.2)
            except cf.FrameTimeout:
                continue
            with frame:
                planes = frame.planes
                for _ in range(2):  # as it comes, and again after it was held
                    if text := frames.wrong(planes, frame.seq):
                        torn.append(text)
                    if hold:
                        time.sleep(hold)
                del planes
            count += 1
        link.say("done", torn=torn, count=count, **sub.stats._asdict())


def hold(link, key):
    """Take a frame and keep an array on it; say what it shows whenever asked."""
    with cf.subscribe(key, timeout=30) as sub:
        frame = sub.next(timeout=30)
        link.say("holds", seq=frame.seq)
        with frame:
            planes = frame.planes
        with contextlib.suppress(EOFError):
            while True:
                link.hear("look")
                link.say("sees", wrong=frames.wrong(planes, frame.seq))


def publish_until_told(link, key, *, memory="host", pause=0.001):
    """Publish frames that describe themselves until told to stop."""
    stop = _told(link)
    with frames.publisher(key, memory=memory) as pub:
        link.say("ready")
        while not stop.wait(pause):
            with contextlib.suppress(cf.RingFullError):
                frames.publish(pub)
        link.say("done", **pub.stats._asdict())


def publish_and_die(link, key, *, memory="host", count=1):
    """Publish, then wait to be killed."""
    pub = frames.publisher(key, memory=memory)
    frames.publish(pub, count)
    link.say("ready", slots=pub.stats.slots)
    signal.pause()


# --- Many processes that die ----------------------------------------------------------------------


class _Tally:
    """Counters that forked processes share and that outlive their deaths."""

    def __init__(self, count):
        self._words = memoryview(mmap.mmap(-1, 8 * count)).cast("Q")

    def add(self, index):
        self._words[index] += 1

    def total(self):
        return sum(self._words)


def _import_all():
    """Import what is otherwise imported at first use, so that each forked process need not."""
    for name in cf.__all__:
        getattr(cf, name)


def _fork(work):
    """Run ``work()`` in a forked process that never returns; return its pid.

    This process has one thread and no object of the package, so nothing is inherited but modules.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        gc.disable()
        work()
        status = 0
    except BaseException as error:  # noqa: BLE001  the process ends here
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
    finally:
        os._exit(status)


def _read_at_random(sub, dice):
    """Take some frames; hold some for a while, keep arrays of some, release some early."""
    kept = []
    for _ in range(dice.randrange(1, 30)):
        try:
            frame = sub.next(timeout=1)
        except (cf.FrameTimeout, cf.LeaseLimitError):
            kept.clear()
            continue
        planes = frame.planes
        if dice.random() < 0.5:
            frame.release()
        if dice.random() < 0.3:
            kept.append(planes)
            del kept[:-2]
        if dice.random() < 0.2:
            time.sleep(dice.random() * 0.003)
        yield frame.seq, planes
        del frame, planes


def kill_subscribers(link, key, *, kills, at_once=6, seed=0):
    """Run subscribers and end them with SIGKILL at random moments; say how many frames they saw."""
    _import_all()
    rng = random.Random(seed)
    seen, torn = _Tally(at_once), _Tally(at_once)
    failed = 0

    def work(index, number):
        dice = random.Random(number)
        while True:
            mode = dice.choice(["newest", "newest", "strict"])
            with cf.subscribe(key, mode, timeout=30) as sub:
                for seq, planes in _read_at_random(sub, dice):
                    if frames.wrong(planes, seq):
                        torn.add(index)
                    seen.add(index)

    def start(index):
        number = rng.randrange(1 << 30)
        return _fork(lambda: work(index, number))

    pids = [start(index) for index in range(at_once)]
    for _ in range(kills):
        time.sleep(rng.random() * 0.04)
        index = rng.randrange(at_once)
        os.kill(pids[index], signal.SIGKILL)
        _, status = os.waitpid(pids[index], 0)
        failed += not os.WIFSIGNALED(status)
        pids[index] = start(index)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    link.say("done", seen=seen.total(), torn=torn.total(), failed=failed)


def kill_publishers(link, key, *, kills, memory="host", seed=0):
    """Run publishers under one name, one after the other, each ended by SIGKILL at some moment."""
    _import_all()
    rng = random.Random(seed)
    started, published = _Tally(1), _Tally(1)

    def work(number):
        width = 16 + number % 50
        with frames.publisher(key, memory=memory, width=width) as pub:
            started.add(0)
            while True:
                with contextlib.suppress(cf.RingFullError):
                    frames.publish(pub)
                    published.add(0)
                time.sleep(0.0005)  # so that its own thread can take readers in
                if number % 3 == 0 and pub.stats.published % 50 == 0:
                    pub.reconfigure(height=8 + pub.stats.published % 40)

    failed = 0
    for number in range(kills):
        before = started.total()
        pid = _fork(lambda n=number: work(n))
        if number % 4:  # every fourth dies whenever, perhaps before it has begun
            while started.total() == before and os.waitpid(pid, os.WNOHANG) == (0, 0):
                time.sleep(0.0005)
        time.sleep(rng.random() * 0.12)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        failed += not os.WIFSIGNALED(status)
    link.say("done", started=started.total(), published=published.total(), failed=failed)


# --- Other users, other namespaces, few descriptors -----------------------------------------------


def _become(uid, gid, groups=()):
    os.setgroups(list(groups))
    os.setgid(gid)
    os.setuid(uid)


def attach_as(link, source, *, uid, gid, groups=(), trusted_uids=()):
    """Subscribe as another user and say what came of it."""
    _import_all()  # while the files can still be read
    _become(uid, gid, groups)
    try:
        with (
            cf.subscribe(source, timeout=0, trusted_uids=trusted_uids) as sub,
            sub.next(timeout=30) as frame,
        ):
            frames.check(frame)
            link.say("frame", seq=frame.seq)
    except cf.CuframesError as error:
        link.say("error", listed=len(cf.list_streams()), **_error(error))
    link.wait()


def publish_as(link, key, directory, *, uid, gid):
    """Publish one frame as another user, in a directory of its own."""
    with frames.publisher("warm-up") as pub:  # imports what it needs while it can be read
        frames.publish(pub)
    Path(directory).mkdir(0o700)
    os.chown(directory, uid, gid)
    os.environ["CUFRAMES_RUNTIME_DIR"] = directory
    _become(uid, gid)
    with frames.publisher(key) as pub:
        frames.publish(pub)
        link.say("ready")
        link.wait()


def attach_in_namespaces(link, key, *, options):
    """Go on as `read` in other namespaces."""
    _go_on_in_namespaces(link, options, read, key, least=20)


def publish_in_namespaces(link, key, *, options):
    """Go on as `publish_until_told` in other namespaces."""
    _go_on_in_namespaces(link, options, publish_until_told, key)


def _go_on_in_namespaces(link, options, target, *args, **kwargs):
    """Become ``unshare``, which runs `target` with this process's link."""
    os.dup2(link._send.fileno(), 1)
    name = f"{target.__module__}:{target.__qualname__}"
    boot = "from tests.helpers.children import main; main()"
    python = [sys.executable, "-c", boot, name, json.dumps(args), json.dumps(kwargs)]
    os.execvp("unshare", ["unshare", *options, *python])


def _limit_descriptors(spare):
    soft = max(fd for fd, _ in open_fds()) + 1 + spare
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def publish_with_few_descriptors(link, key, *, spare):
    """Publish with room for `spare` more descriptors."""
    stop = _told(link)
    with frames.publisher(key) as pub:
        before, limits = len(open_fds()), resource.getrlimit(resource.RLIMIT_NOFILE)
        _limit_descriptors(spare)
        link.say("ready")
        while not stop.wait(0.001):
            with contextlib.suppress(cf.RingFullError):
                frames.publish(pub)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        frames.until(lambda: pub.stats.subscribers == 0 and len(open_fds()) == before)
        link.say("done", leased=pub.stats.slots_leased)


def attach_with_few_descriptors(link, key, *, spares):
    """Subscribe with room for each number of descriptors; say what came of each, and the rest."""
    with cf.subscribe(key) as sub:
        frames.check(sub.next(timeout=30))
    gc.collect()
    before, limits = open_fds(), resource.getrlimit(resource.RLIMIT_NOFILE)
    outcomes = []
    for spare in spares:
        _limit_descriptors(spare)
        try:
            with cf.subscribe(key, timeout=0) as sub, sub.next(timeout=30) as frame:
                frames.check(frame)
            outcomes.append("frame")
        except (cf.CuframesError, OSError) as error:
            outcomes.append(getattr(error, "code", type(error).__name__))
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    left = [target for _, target in open_fds() - before]
    link.say("done", outcomes=outcomes, left=left)
    link.wait()


# --- The end of a process -------------------------------------------------------------------------


def leave_everything_open(link, *, mode):
    """End the process with everything open, in the way that `mode` says."""
    pub = frames.publisher("cam")
    sub = cf.subscribe("cam")
    frames.publish(pub, 2)
    frame = sub.next(timeout=30)
    slot = pub.acquire()
    kept = [pub, sub, frame, frame.y, slot, slot.y, iter(sub)]
    kept.append(kept)
    sys.modules["kept"] = kept
    link.say("ready")
    if mode == "exit":
        sys.exit(0)
    if mode == "_exit":
        os._exit(0)
    if mode == "raise":
        raise SystemExit(0)


def be_interrupted(link, key, *, how):
    """Wait for frames in the main thread, be interrupted, and go on."""
    with cf.subscribe(key) as sub:
        before = len(open_fds())
        for _ in range(3):
            link.say("waiting")
            try:
                if how == "next":
                    sub.next()
                elif how == "timeout":
                    sub.next(timeout=1000)
                else:
                    for frame in sub:
                        frame.release()
                link.say("not interrupted")
            except KeyboardInterrupt:
                link.say("interrupted", descriptors=len(open_fds()) - before)
            link.hear("go on")
            with sub.next(timeout=30) as frame:
                frames.check(frame)
                link.say("frame", seq=frame.seq)
    link.say("closed")


def fork_with_everything(link):
    """Fork with a publisher, a subscriber, a frame and a slot; say what the child could do."""
    pub, sub = frames.publisher("cam"), cf.subscribe("cam")
    frames.publish(pub)
    frame, slot = sub.next(timeout=30), pub.acquire()
    y, used = frame.y, frame.copy()
    ours = {fd for fd in open_fds() if "cuframes" in fd[1] or "socket" in fd[1] or "pipe" in fd[1]}
    uses = {
        "acquire": pub.acquire,
        "publish": lambda: pub.publish(slot),
        "discard": lambda: pub.discard(slot),
        "write": lambda: pub.write(used),
        "reconfigure": lambda: pub.reconfigure(width=32),
        "stats": lambda: pub.stats,
        "info": lambda: pub.info,
        "slot.y": lambda: slot.y,
        "slot.planes": lambda: slot.planes,
        "slot.array": lambda: slot.array,
        "next": lambda: sub.next(timeout=1),
        "latest": sub.latest,
        "iter": lambda: next(iter(sub)),
        "frame.y": lambda: frame.y,
        "frame.array": lambda: frame.array,
        "frame.rgb": frame.rgb,
        "frame.copy": frame.copy,
    }
    reader, writer = os.pipe()
    # Another thread is in the midst of publishing: its lock stays taken in the child.
    pub._mutex.acquire()
    pid = os.fork()
    if pid == 0:
        bad = []
        for name, use in uses.items():
            try:
                use()
                bad.append(f"{name} worked")
            except cf.ForkedError as error:
                if f"made in process {os.getppid()}" not in str(error):
                    bad.append(str(error))
            except BaseException as error:  # noqa: BLE001  told to the parent
                bad.append(f"{name}: {error!r}")
        if (y != 1).any() or not (used.y == 1).all():
            bad.append("the pixels are not there")
        bad += [f"inherited {what}" for what in ours & open_fds() if "cuframes" in what[1]]
        for close in (frame.release, sub.close, pub.close, sub.close):
            close()
        with frames.publisher("other") as mine, cf.subscribe("other") as theirs:
            frames.publish(mine)
            frames.check(theirs.next(timeout=30))
        os.write(writer, "\n".join(bad).encode() or b"fine")
        signal.pause()
    pub._mutex.release()
    told = os.read(reader, 65536).decode()
    # The child lives on; nothing of ours is held by it.
    fine = pub.stats.slots_leased == 1
    frame.release()
    del y
    fine &= pub.stats.slots_leased == 0
    pub.publish(slot)
    frames.publish(pub, 10)
    frames.check(sub.next(timeout=30))
    link.say("child", said=told, fine=fine)
    link.hear("die or close")
    sub.close()
    pub.close()
    with frames.publisher("cam") as again, cf.subscribe("cam") as sub:
        frames.publish(again)
        frames.check(sub.next(timeout=30))
    link.say("again")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def fork_and_die(link, key):
    """Fork a child that lives on, and be killed while holding a frame and publishing a stream."""
    pub = frames.publisher("mine")
    frames.publish(pub)
    sub = cf.subscribe(key)
    frame = sub.next(timeout=30)
    kept = frame.y
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)  # the parent's parent ends it
        os._exit(0)
    link.say("ready", child=pid)
    signal.pause()
    del kept
