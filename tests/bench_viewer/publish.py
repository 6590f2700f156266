"""Publishes a film of stamped frames at a steady rate, and notes when each was published."""

import argparse
import time

import numpy as np

import cuframes_nb as cf
from cuframes_nb.sources import sample_video
from tests.helpers import stamps

CLIP = 60


def clip(width, height):
    """Return some frames of the film at a size, as rows of NV12."""
    import av

    frames = []
    with av.open(str(sample_video())) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index >= 30:
                frames.append(frame.reformat(width, height, format="nv12").to_ndarray())
            if len(frames) == CLIP:
                break
    return frames


def main():
    """Publish until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("keys", nargs="+")
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--fps", type=float, default=29.97)
    parser.add_argument("--log", required=True)
    args = parser.parse_args()
    width, height = map(int, args.size.split("x"))
    frames = clip(width, height)
    pubs = [
        cf.Publisher(key, width=width, height=height, fps=args.fps, memory="host", pitch=width)
        for key in args.keys
    ]
    times = np.memmap(args.log, np.int64, "w+", shape=(1 << stamps.BITS,))
    print("ready", flush=True)
    start, number = time.monotonic(), 0
    while True:
        due = start + number / args.fps
        time.sleep(max(0.0, due - time.monotonic()))
        number += 1
        picture = frames[number % len(frames)]
        for pub in pubs:
            with pub.acquire() as slot:
                slot.array[:] = picture
                stamps.write(slot.y, number)
                times[number] = time.monotonic_ns()


if __name__ == "__main__":
    main()
