"""Mails that Python's email package, or a reader of diffs, fails on in ways of its own."""

DIFF = "diff --git a/mm/x.c b/mm/x.c\n--- a/mm/x.c\n+++ b/mm/x.c\n@@ -1 +1 @@\n-x\n+y\n"
LONG = "9" * 5000


def mail(name: str, *headers: str, body: str = DIFF) -> bytes:
    """A posted patch with these headers besides an id and a subject; ``name`` makes both."""
    lines = [f"Message-ID: <{name}@example.org>", f"Subject: [PATCH] mm: {name}", *headers]
    return "\n".join([*lines, "", body]).encode()


# Each cannot be read.
UNREADABLE = {
    # ValueError, "embedded null character", in Message.get_content_charset
    "nul-charset": mail(
        "nul-charset", "From: a@b.org", "Content-Type: text/plain; charset*=x\0''y"
    ),
    # more digits than int() takes
    "hunk-line": mail("hunk-line", "From: a@b.org", body=DIFF.replace("-1 ", f"-{LONG} ")),
    "hunk-count": mail("hunk-count", "From: a@b.org", body=DIFF.replace("+1 ", f"+1,{LONG} ")),
}
# Each breaks a rule, and is read all the same.
ODD = {
    # email.errors.CharsetError, which is no ValueError
    "header-charset": mail("odd", "From: a@b.org").replace(b"odd\n", b"=?utf-\xd9\xa3?q?x?=\n", 1),
    "body-charset": mail("odd", "From: a@b.org", "Content-Type: text/plain; charset=klingon"),
    # LookupError: a codec, but not one of text
    "zlib": mail("odd", "From: a@b.org", "Content-Type: text/plain; charset=zlib"),
    # half of a surrogate pair, which cannot be written into a patch file again
    "utf-7": mail(
        "odd", "From: a@b.org", "Content-Type: text/plain; charset=utf-7", body=f"+2AA-\n{DIFF}"
    ),
    "escape": mail(
        "odd",
        "From: a@b.org",
        "Content-Type: text/plain; charset=unicode_escape",
        body=f"\\ud800\n{DIFF}",
    ),
    # takes minutes for 100 kB where it is decoded, as Python does of what is not all ASCII
    "punycode": mail(
        "odd",
        "From: a@b.org",
        "Content-Type: text/plain; charset=punycode",
        body=f"{DIFF}-- \n\xe9{'a' * 200_000}-{'b99b' * 200_000}\n",
    ),
}
