"""Prints what vouches for each mail of a folder, as JSON; a program of its own, for a box.

Called with the folder, the sender's address and the keyring.  It ends at the first mail that
nothing vouches for.
"""

from __future__ import annotations

import email
import json
import re
import sys
from email import policy
from pathlib import Path

import b4
import patatt

# b4's own, and no file of the user's.
b4.MAIN_CONFIG = dict(b4.DEFAULT_CONFIG)
# Each header that people go by, once: of two, one may be signed and the other one shown.
ONCE = ("from", "subject")
# A signature of the first so many bytes of a body.
OPEN_END = re.compile(r"(^|;)\s*l=", re.M)


def of_mail(raw: bytes, sender: str, keyring: str) -> str:
    """What vouches that a mail is of ``sender``, or nothing."""
    mail = email.message_from_bytes(raw, policy=policy.SMTP)
    if any(len(mail.get_all(name, [])) != 1 for name in ONCE):
        return ""
    if mail.get(b4.DEVSIG_HDR):
        for result, identity, _, _, algorithm, _ in patatt.validate_message(
            raw, [keyring], trim_body=False
        ):
            if result == patatt.RES_VALID and identity and identity.lower() == sender:
                return f"{algorithm} {sender}"
    signatures = mail.get_all("dkim-signature", [])
    if not signatures or any(OPEN_END.search(str(text)) for text in signatures):
        return ""
    for attestor in b4.LoreMessage(mail).attestors:
        is_domain = isinstance(attestor, b4.LoreAttestorDKIM) and attestor.passing
        if is_domain and attestor.check_identity(sender):
            return f"DKIM {attestor.identity}"
    return ""


def main() -> None:
    """Read the mails, print the answer."""
    folder, sender, keyring = sys.argv[1:]
    attestors: list[str] = []
    for path in sorted(Path(folder).glob("*.eml")):
        try:
            attestors.append(of_mail(path.read_bytes(), sender, keyring))
        except Exception:  # whatever a signature has its reader raise
            attestors.append("")
        if not attestors[-1]:
            break
    print(json.dumps(attestors))


if __name__ == "__main__":
    main()
