"""Runs before a frozen program: where CUDA's files are, and processes of this package's own."""


def _point_to_cuda() -> None:
    """Have CuPy find the compiler and the headers that came along, where nobody named others."""
    import os
    import sys

    path = os.path.join(getattr(sys, "_MEIPASS", ""), "cuda")  # noqa: PTH118  starts sooner
    if not {"CUDA_PATH", "CUDA_HOME"} & {*os.environ} and os.path.isdir(path):  # noqa: PTH112
        os.environ["CUDA_PATH"] = path


def _run_our_module() -> None:
    """Be the interpreter of one of our modules, if that is how the program was started.

    ``cuframes-nb doctor`` tries things in processes of their own: ``sys.executable -m
    cuframes_nb...``. In a frozen program that is the program itself, which would start once more.
    """
    import runpy
    import sys

    arguments = [argument for argument in sys.argv[1:] if argument != "-P"]
    if arguments[:1] != ["-m"] or not arguments[1:]:
        return
    module = arguments[1]
    if module.partition(".")[0] != "cuframes_nb":
        return
    sys.argv = [module, *arguments[2:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


_point_to_cuda()
_run_our_module()
