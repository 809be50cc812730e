"""`python -m chaos.wrong_clock`: the module that CHAOS_MODULE names, on a machine whose clock is wrong."""

import os
import runpy

from chaos import clock

if __name__ == "__main__":
    # Before anything else asks for the time.
    clock.begin()
    runpy.run_module(os.environ["CHAOS_MODULE"], run_name="__main__", alter_sys=True)
