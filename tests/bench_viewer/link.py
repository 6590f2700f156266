"""A link of a given rate and delay between two sockets: a proxy with small buffers."""

import argparse
import asyncio
import socket
import sys
import time

CHUNK = 4096


class Rate:
    """What the link carries; a line on stdin changes it."""

    def __init__(self, mbit):
        self.mbit = mbit

    @property
    def bytes_per_s(self):
        """Bytes a second."""
        return self.mbit * 125e3

    def read(self):
        """Take a new rate from stdin."""
        self.mbit = float(sys.stdin.readline() or self.mbit)


async def pump(reader, writer, rate, delay):
    """Carry one direction: at a rate, late, and with no more than the delay's worth on the way."""
    on_way = asyncio.Queue(maxsize=16)

    async def take():
        free = time.monotonic()
        data = b"?"
        while data:
            data = await reader.read(CHUNK)
            free = max(free, time.monotonic()) + len(data) / rate.bytes_per_s
            await asyncio.sleep(max(0.0, free - time.monotonic()))
            await on_way.put((time.monotonic() + delay, data))

    async def deliver():
        while True:
            at, data = await on_way.get()
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            if not data:
                return
            writer.write(data)
            await writer.drain()

    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(take())
            both.create_task(deliver())
    except* ConnectionError:  # one side is gone, and so the other goes
        pass
    writer.close()


async def serve(target, mbit, delay):
    """Serve on a free port; prints it."""
    rate = Rate(mbit)
    asyncio.get_running_loop().add_reader(sys.stdin, rate.read)

    async def connected(reader, writer):
        writer.transport.set_write_buffer_limits(high=8192)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", target))
        up_reader, up_writer = await asyncio.open_connection(sock=sock, limit=8192)
        up_writer.transport.set_write_buffer_limits(high=8192)
        await asyncio.gather(
            pump(up_reader, writer, rate, delay), pump(reader, up_writer, rate, delay)
        )

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=8192)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=int)
    parser.add_argument("mbit", type=float)
    parser.add_argument("--delay-ms", type=float, default=20)
    args = parser.parse_args()
    asyncio.run(serve(args.target, args.mbit, args.delay_ms / 1000))
