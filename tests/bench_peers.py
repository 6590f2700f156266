"""How fast frames of one GPU are read on another: mapped into it, copied to it, and where they are.

``python -m tests.bench_peers`` on a machine with two GPUs that reach each other; with one, that one
passes for both where it can. Nothing is asserted.
"""

import sys
import tempfile
import time

import cupy as cp

import cuframes_nb as cf
from cuframes_nb._cuda.devices import activated, gpus
from tests.helpers.children import child

WIDTH, HEIGHT = 7680, 4320  # rgba32: 133 MB
ROUNDS = 20
SMALL = 300
_HERE = "tests.bench_peers"  # also when this is the main module


def read(link, key, **wish):
    """Say how fast a large frame's pixels are copied to memory of the GPU that reads."""
    with cf.subscribe(key, timeout=20, **wish) as subscriber, subscriber.next(20) as frame:
        ordinal = int(frame.device.removeprefix("cuda:"))
        with activated(ordinal):
            own = cp.empty_like(frame.y)
            cp.copyto(own, frame.y)
            cp.cuda.runtime.deviceSynchronize()
            start = time.perf_counter()
            for _ in range(ROUNDS):
                cp.copyto(own, frame.y)
            cp.cuda.runtime.deviceSynchronize()
            seconds = (time.perf_counter() - start) / ROUNDS
        link.say("read", gbps=own.nbytes / seconds / 1e9, device=frame.device,
                 reason=subscriber.info.memory_reason)  # fmt: skip


def take(link, key, **wish):
    """Say how long it takes to take the newest frame, and until its pixels are there."""
    with cf.subscribe(key, timeout=20, **wish) as subscriber:
        took, there = [], []
        for _ in range(SMALL):
            start = time.perf_counter()
            with subscriber.latest() as frame:
                took.append(time.perf_counter() - start)
                with activated(int(frame.device.removeprefix("cuda:"))):
                    cp.cuda.get_current_stream().synchronize()
                there.append(time.perf_counter() - start)
        link.say("took", median=sorted(took)[SMALL // 2], there=sorted(there)[SMALL // 2])


def main():
    """Print a line for each way."""
    other = gpus()[-1].uuid_text
    env = {"CUFRAMES_RUNTIME_DIR": tempfile.mkdtemp(prefix="cf-", dir="/tmp")}
    ways = {
        "where they are": {},
        "mapped into another GPU": {"peer": True, "device": other},
        "the same, its holder hidden": {"peer": True},
        "copied to another GPU": {"copy_to": other},
    }
    with child(f"{_HERE}:publish", env=env, seconds=60) as publisher:
        publisher.expect("ready")
        for name, wish in ways.items():
            seen = dict(env)
            if "hidden" in name:
                if len(gpus()) < 2:
                    continue
                seen["CUDA_VISIBLE_DEVICES"] = other
            with child(f"{_HERE}:read", "large", env=seen, seconds=60, **wish) as it:
                told = it.expect("read")
            with child(f"{_HERE}:take", "small", env=seen, seconds=60, **wish) as it:
                took = it.expect("took")
            line = f"{name}: read at {told['gbps']:.0f} GB/s; 1080p taken in "
            line += f"{took['median'] * 1e6:.0f} us, there in {took['there'] * 1e6:.0f} us"
            print(f"{line} ({told['reason']})", flush=True)  # noqa: T201  a benchmark prints


def publish(link):
    """Publish a large stream and a small one on the first GPU, a frame each."""
    with (
        cf.Publisher(
            "large", width=WIDTH, height=HEIGHT, format="rgba32", memory="cuda", device=0
        ) as large,
        cf.Publisher("small", width=1920, height=1080, memory="cuda", device=0) as small,
    ):
        for publisher in (large, small):
            with publisher.acquire() as slot:
                for plane in slot.planes:
                    plane.fill(7)
        link.say("ready")
        link.wait()


if __name__ == "__main__":
    sys.exit(main())
