"""A pytest plugin for finsy's examples: their networks run here, not in a container."""

import pathlib

from finsy.test import demonet

demonet._IMAGE_P4SWITCH_PY = pathlib.Path(__file__).with_name("finsy_switch.py")
