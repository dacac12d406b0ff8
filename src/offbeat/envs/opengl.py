"""Recognizes the errors of envs that draw their observations with OpenGL, on a machine without a screen."""

from __future__ import annotations

import re
import traceback

from offbeat.core.errors import type_and_text

_DRAWING = re.compile(r"OpenGL|gl_?context|GLContext|[/\\](mujoco[/\\]render|_render[/\\]|glfw[/\\]|pyglet[/\\])")
"""What the errors of MuJoCo's and dm_control's renderers, GLFW and pyglet have in their text or in their frames."""

_REMEDY = (
    "it draws with OpenGL, and needs a screen or a renderer without one: put MUJOCO_GL=egl in front of the command (or "
    "MUJOCO_GL=osmesa, with libosmesa6), and for pyglet PYGLET_HEADLESS=true"
)


def opengl_remedy(error: BaseException) -> str:
    """Return what to do about an exception that was raised while an env drew; '' for other exceptions."""
    frames = traceback.extract_tb(error.__traceback__)
    found = any(map(_DRAWING.search, (type_and_text(error), *(frame.filename for frame in frames))))
    return _REMEDY if found else ""
