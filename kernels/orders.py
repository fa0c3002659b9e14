"""Other orders of a kernel's object files: the same code in other places, by a link each.

Where code is moves real time by tenths of a percent and up to some percent, which belongs to a
binary and not to its source.  A build of User-Mode Linux is linked again with the text of its
objects in drawn orders, so that a change is seen in many layouts.  An object has the same place
in the order of a number whatever else is linked, so that the builds of two arms are alike but for
what their sources differ in.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

# Files of that name and a number, in the object folder and in the cache.
NAME = "order-"
COUNT = 8
LOG = "orders.log"
# Of the linker's script: where the text of all objects is put.
TEXT = r"\*(\.text\.hot"


def names(count: int = COUNT) -> tuple[str, ...]:
    """The images' names, relative to the object folder."""
    return tuple(f"{NAME}{number}" for number in range(1, count + 1))


def script(make: Sequence[str], folder: str, count: int = COUNT) -> str:
    """Shell commands that link the kernel that is built in ``folder`` once more in each order.
    ``make`` is the command that builds it, without its targets.  Made once more with all that it
    runs on record, it says how the release links; each order is that link with a script of its
    own.  What fails leaves an image out, which whoever keeps the images refuses.
    """
    lines = [
        f"rm -f {folder}/{NAME}* {folder}/vmlinux {folder}/vmlinux.unstripped",
        f"{shlex.join(make)} V=1 linux > {folder}/{LOG} 2>&1 || exit",
        f"cd {folder}",
        # The last of the links; its words have no blanks in them.
        f"link=$(sed -n 's/^+ \\(.*--script=.*--whole-archive.*\\)/\\1/p' {LOG} | tail -n 1)",
        "ar t vmlinux.a > orders.list",
    ]
    for number, name in enumerate(names(count), 1):
        lines += [
            # As many bytes as a hash is salted with.
            f"printf '%-64d' {number} > orders.salt",
            "text=$(sort -R --random-source=orders.salt orders.list | sed 's/.*/*&(.text)/' | "
            "tr '\\n' ' ')",
            f'sed "s#{TEXT}#$text&#" arch/um/kernel/vmlinux.lds > {name}.lds',
            f'grep -q "(.text) {TEXT}" {name}.lds || exit',
            f'$(echo "$link" | sed "s#--script=[^ ]*#--script={name}.lds -Wl,-s#; '
            f's# -o [^ ]*# -o {name}#")',
        ]
    return "\n".join(lines)
