"""What the choice of a MySQL server depends on, of the machine and the user."""

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about a machine and its user.

    Attributes:
        is_root: whether the user is root.
        architecture: such as x86_64.
        find_program: returns the path of a program; None if it is not installed.
    """

    is_root: bool
    architecture: str
    find_program: Callable[[str], str | None]


THIS_MACHINE: Final = Machine(os.geteuid() == 0, platform.machine(), shutil.which)
