"""PyInstaller: the live view, for programs that import `cuframes_nb.notebook` themselves."""

from __future__ import annotations

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

hiddenimports = collect_submodules("cuframes_nb.notebook")
datas = collect_data_files("cuframes_nb.notebook")  # what the browser is sent
