"""Vulkan programs in processes of their own, to be started with `tests.helpers.children.child`."""

import contextlib
import os
import signal

import cuframes_nb as cf
from tests.helpers.vulkan import make, noise, read_buffer, write

__all__ = ["ask", "hold", "look", "publish"]


def publish(link, key, kind, format_, size, *, count=4):
    """Publish a frame of noise whenever the parent says its seed."""
    from cuframes_nb.bridges.vulkan import Device

    with contextlib.ExitStack() as stack:
        device = stack.enter_context(Device.open())
        buffers = [stack.enter_context(make(device, kind, format_, size)) for _ in range(count)]
        pub = stack.enter_context(
            cf.Publisher(
                key, width=size[0], height=size[1], format=format_, ownership="external",
                buffers=buffers,
            )
        )  # fmt: skip
        link.say("ready", sharing=pub.info.sharing, completion=pub.info.completion_reason)
        with contextlib.suppress(EOFError):
            while True:
                seed = link.hear("frame")["seed"]
                index = pub.wait_free(timeout=20)
                write(device, buffers[index], noise(buffers[index].layout, seed))
                link.say("published", seq=pub.publish_buffer(index), index=index)


def look(link, key, seeds):
    """Subscribe, and read each frame through Vulkan, where its publisher wrote it."""
    from cuframes_nb.bridges.vulkan import Device, import_frame

    with Device.open() as device, cf.subscribe(key, timeout=20) as sub:
        link.say("ready")
        for seed in seeds:
            frame = sub.next(timeout=20)
            with import_frame(frame, device) as imported:
                frame.release()
                planes = read_buffer(device, imported.buffer, imported.offset, imported.layout)
            told = noise(imported.layout, seed)
            equal = all((a == b).all() for a, b in zip(planes, told, strict=True))
            link.say("seen", equal=bool(equal), seq=frame.seq)


def hold(link, key):
    """Take a frame, say so, and die with it."""
    sub = cf.subscribe(key, timeout=20)
    frame = sub.next(timeout=20)
    link.say("holding", seq=frame.seq)
    link.hear("die")
    os.kill(os.getpid(), signal.SIGKILL)


def ask(link, key):
    """Try to subscribe, and say what came of it."""
    try:
        cf.subscribe(key, timeout=20, reconnect=False).close()
    except cf.CuframesError as error:
        link.say("refused", code=error.code, text=str(error))
    else:
        link.say("taken")
