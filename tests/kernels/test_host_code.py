"""What of a series a build executes on the host, by file."""

from __future__ import annotations

import pytest

from kernels.series import host_code


def diff(file: str, *lines: str, made: str = "") -> str:
    head = f"diff --git a/{file} b/{file}\n"
    old = "/dev/null" if made else f"a/{file}"
    head += f"new file mode {made}\n" if made else ""
    body = "".join(f"+{line}\n" for line in lines)
    return f"{head}--- {old}\n+++ b/{file}\n@@ -0,0 +1,{len(lines)} @@\n{body}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (diff("mm/Makefile", "obj-y += x.o"), "a makefile"),
        (diff("mm/Kbuild", "x"), "a makefile"),
        (diff("arch/x86/Makefile.um", "x"), "a makefile"),
        (diff("tools/build/x.mk", "x"), "a makefile"),
        (diff("scripts/mod/modpost.c", "x"), "a program or script of the build"),
        (diff("tools/objtool/check.c", "x"), "a program or script of the build"),
        (diff("arch/arm64/tools/cpucaps", "X"), "a program or script of the build"),
        (diff("arch/x86/boot/tools/build.c", "X"), "a program or script of the build"),
        (diff("rust/macros/lib.rs", "x"), "a program or script of the build"),
        (diff("kernel/gen_kheaders.sh", "x"), "a script"),
        (diff("kernel/time/timeconst.bc", "x"), "a script"),
        (diff("mm/helper", "#!/bin/sh", made="100755"), "a script"),
        (diff("lib/raid6/mktables.c", "x"), "compiled into a program of the build"),
        (diff("include/linux/mod_devicetable.h", "x"), "compiled into a program of the build"),
        (diff("mm/Kconfig", "\tdefault $(shell,id)"), "a command in Kconfig"),
        (diff("mm/Kconfig.debug", "\tdepends on $(cc-option,-x)"), "a command in Kconfig"),
        (diff("mm/x.c", 'asm(".incbin \\"/etc/passwd\\"");'), "reads files of the host"),
        (diff("mm/x.S", '.include "/etc/passwd"'), "reads files of the host"),
        (diff("mm/x.c", '# include "/etc/passwd"'), "reads files of the host"),
        (diff("rust/x.rs", 'include_str!("/etc/passwd")'), "reads files of the host"),
        (diff("mm/x.c", '#embed "/etc/passwd"'), "reads files of the host"),
    ],
)
def test_what_a_build_executes_is_named_with_a_reason(text: str, reason: str) -> None:
    file = text.partition(" b/")[2].partition("\n")[0]
    assert host_code([diff("mm/before.c", "x") + text + diff("mm/after.c", "x")]) == (
        f"{file} ({reason})",
    )


@pytest.mark.parametrize(
    "text",
    [
        diff("mm/filemap.c", "#include <linux/mm.h>", '#include "../internal.h"'),
        diff("mm/Kconfig", "config X", "\tdefault y"),
        diff("Documentation/conf.py", "x"),
        diff("drivers/gpu/drm/i915/gt/gen6_ppgtt.c", "x"),
        "Subject: [PATCH 0/2] a cover letter\n\nof scripts/x\n",
        # What is taken out is read no more.
        "--- a/mm/x.c\n+++ b/mm/x.c\n@@ -1 +0,0 @@\n-.incbin\n",
    ],
)
def test_code_of_the_kernel_is_not(text: str) -> None:
    assert host_code([text]) == ()


def test_a_removed_and_a_renamed_script_are_named_too() -> None:
    removed = "diff --git a/scripts/x b/scripts/x\ndeleted file mode 100644\n--- a/scripts/x\n"
    removed += "+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    renamed = "diff --git a/mm/x.c b/scripts/y.c\nsimilarity index 100%\nrename from mm/x.c\n"
    renamed += "rename to scripts/y.c\n"
    plain = "--- a/scripts/z\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    assert [each.partition(" ")[0] for each in host_code([removed, renamed, plain])] == [
        "scripts/x", "scripts/y.c", "scripts/z",
    ]  # fmt: skip
