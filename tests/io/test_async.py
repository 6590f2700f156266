"""The same frames in an event loop that is never blocked."""

import asyncio
import contextlib
import threading

import pytest

import cuframes_nb as cf
from tests.helpers.frames import check, publish, publisher, until


@contextlib.contextmanager
def publishing(pub, count, pause=0.002):
    """Publish on a thread."""
    stop = threading.Event()

    def run():
        for _ in range(count):
            with contextlib.suppress(cf.RingFullError):
                publish(pub)
            if stop.wait(pause):
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_frames_come_and_the_loop_goes_on():
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticker = asyncio.create_task(tick())
        seen = []
        async for frame in sub:
            check(frame)
            seen.append(frame)
            if len(seen) == 30:
                break
        ticker.cancel()
        assert ticks >= 10
        assert all(frame.released for frame in seen[:-1])
        assert [f.seq for f in seen] == sorted({f.seq for f in seen})

    with publisher() as pub, cf.subscribe("cam") as sub, publishing(pub, 10**6):
        asyncio.run(main())


def test_the_loop_goes_on_while_nothing_comes():
    async def main():
        waiting = asyncio.ensure_future(anext(aiter(sub)))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        publish(pub)
        check(await waiting)

    with publisher() as pub, cf.subscribe("cam") as sub:
        asyncio.run(main())


def test_several_streams_in_one_loop():
    async def read(sub, count):
        seqs = []
        async for frame in sub:
            check(frame)
            seqs.append(frame.seq)
            if len(seqs) == count:
                return seqs
        return seqs

    async def main(subs):
        return await asyncio.gather(*(read(sub, 20) for sub in subs))

    with contextlib.ExitStack() as stack:
        subs = []
        for key in ("a", "b", "c"):
            pub = stack.enter_context(publisher(key))
            subs.append(stack.enter_context(cf.subscribe(key)))
            stack.enter_context(publishing(pub, 10**6))
        assert [len(seqs) for seqs in asyncio.run(main(subs))] == [20, 20, 20]


def test_a_wait_can_be_cancelled_and_taken_up_again():
    async def main():
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(aiter(sub)), 0.01)
        publish(pub)
        check(await anext(aiter(sub)))

    with publisher() as pub, cf.subscribe("cam") as sub:
        asyncio.run(main())
        publish(pub)
        check(sub.next(timeout=10))


def test_one_task_at_a_time():
    async def main():
        first = asyncio.ensure_future(anext(aiter(sub)))
        await asyncio.sleep(0.01)
        with pytest.raises(cf.InUseError):
            await anext(aiter(sub))
        publish(pub)
        check(await first)

    with publisher() as pub, cf.subscribe("cam") as sub:
        asyncio.run(main())


def test_close_wakes_a_task_that_waits():
    # lifetime.md, 10
    async def main():
        waiting = asyncio.ensure_future(anext(aiter(sub)))
        await asyncio.sleep(0.01)
        sub.close()
        with pytest.raises(cf.ClosedError):
            await waiting

    with publisher() as pub, cf.subscribe("cam") as sub:
        asyncio.run(main())
        until(lambda: pub.stats.subscribers == 0)


def test_iteration_ends_with_the_stream():
    async def main():
        return [frame.seq async for frame in sub]

    with publisher() as pub:
        sub = cf.subscribe("cam", "strict", reconnect=False)
        publish(pub, 3)
    with sub:
        assert asyncio.run(main()) == [1, 2, 3]
        with pytest.raises(cf.PublisherGoneError):
            sub.next()


def test_reconnecting_does_not_block_the_loop():
    async def main():
        waiting = asyncio.ensure_future(anext(aiter(sub)))
        for _ in range(20):
            await asyncio.sleep(0.001)
        with publisher() as pub:
            publish(pub)
            check(await waiting)

    with publisher():
        sub = cf.subscribe("cam")
    with sub:
        asyncio.run(main())
        assert sub.stats.connects == 2


def test_a_reconnect_that_is_cancelled_leaves_nothing():
    # lifetime.md, 12
    async def main():
        for _ in range(10):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(anext(aiter(sub)), 0.003)

    for _ in range(5):
        with publisher():
            sub = cf.subscribe("cam")
        with sub, publisher() as pub:
            asyncio.run(main())
            until(lambda pub=pub: pub.stats.subscribers <= 1)
        until(lambda pub=pub: pub.closed)
