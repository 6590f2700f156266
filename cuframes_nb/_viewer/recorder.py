"""Recording what a view shows: each stream into a film of its own, in full size and rate."""

from __future__ import annotations

import datetime as dt
import importlib.util
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from cuframes_nb._viewer import messages
from cuframes_nb._viewer.camera import Camera
from cuframes_nb.sinks import Recording

__all__ = ["Recorder"]

_MIME: Final = "video/mp4"


class Recorder:
    """Records the streams of a view from `begin` to `end`; for the view's thread.

    A recording has a subscription of its own, so what the view shows, skips or pauses does not
    matter to it; nor does whether anybody looks.

    Parameters
    ----------
    cameras
        Whose streams.
    tell
        Sends a message to the pages; on any thread.
    """

    def __init__(self, cameras: Sequence[Camera], tell: Callable[[dict[str, Any]], object]) -> None:
        self._cameras = tuple(cameras)
        self._tell = tell
        self._recordings: list[Recording] = []
        self._ending: list[threading.Thread] = []
        self.available = importlib.util.find_spec("av") is not None

    @property
    def running(self) -> bool:
        """Whether anything is being recorded."""
        return bool(self._recordings)

    def begin(self) -> None:
        """Begin to record what has a picture, into the current directory; nothing if it runs."""
        if self._recordings:
            return
        now = dt.datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        names = [camera.name for camera in self._cameras]
        for i, camera in enumerate(self._cameras):
            number = f"-{i + 1}" if names.count(camera.name) > 1 else ""
            if camera.shown is None:
                self._fail(f"{camera.name} has no picture to record")
                continue
            try:
                recording = Recording(camera.address, Path(f"{camera.name}{number}-{now}.mp4"))
            except Exception as error:  # noqa: BLE001  whatever it is, people are to know
                self._fail(f"{camera.name} is not recorded: {error}")
            else:
                self._recordings.append(recording)

    def end(self) -> None:
        """End all recordings; what was written is told once it is."""
        recordings, self._recordings = self._recordings, []
        self._ending = [thread for thread in self._ending if thread.is_alive()]
        for recording in recordings:  # what waits to be encoded may take a second
            thread = threading.Thread(
                target=self._finish, args=(recording,), name="cuframes-view-record", daemon=True
            )
            thread.start()
            self._ending.append(thread)

    def look(self) -> None:
        """Tell of recordings that have ended by themselves: a full disk, a stream that closed."""
        for recording in [each for each in self._recordings if not each.running]:
            self._recordings.remove(recording)
            self._finish(recording)

    def close(self) -> None:
        """End all recordings, and wait until their files are whole."""
        self.end()
        for thread in self._ending:
            thread.join()

    def _finish(self, recording: Recording) -> None:
        try:
            info = recording.stop()
        except Exception as error:  # noqa: BLE001  whatever it is, people are to know
            self._fail(f"the recording ended: {error}")
            return
        for path in info.paths:
            self._tell(messages.saved(path.name, str(path.resolve()), _MIME))

    def _fail(self, text: str) -> None:
        self._tell(messages.told(text, error=True))
