"""The main job on the real parts, told as it happens: `make demo`. See docs/demo.md."""
