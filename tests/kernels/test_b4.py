"""Real signatures, checked as the watch does: which vouch for a sender, and which do not."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import dkim.dnsplug  # type: ignore[import-untyped]
import patatt
import pytest
from nacl.encoding import Base64Encoder
from nacl.signing import SigningKey

from host import sandbox
from kernels.attestation_check import of_mail
from kernels.b4 import attested, keyring
from tests.queues.archive import series

ADA = "ada@example.org"


@pytest.fixture
def sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], bytes]:
    """Signs as Ada, whose key is in the keyring."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    # It signs with the first key that the process ever used, else.
    monkeypatch.setattr(patatt, "KEYCACHE", {})
    key = SigningKey.generate()
    secret = tmp_path / "ada.key"
    secret.write_bytes(key.encode(encoder=Base64Encoder))
    public = keyring() / "ed25519/example.org/ada/default"
    public.parent.mkdir(parents=True)
    public.write_bytes(key.verify_key.encode(encoder=Base64Encoder))
    config: dict[str, str | list[str]] = {
        "identity": ADA,
        "signingkey": f"ed25519:{secret}",
        "selector": "default",
    }
    return lambda raw: patatt.rfc2822_sign(raw, config)


def mails(sender: str = f"Ada L <{ADA}>") -> list[bytes]:
    return [post.encoded() for post in series("a", 2, sender=sender)]


def test_signed_mails_are_vouched_for(sign: Callable[[bytes], bytes]) -> None:
    assert attested([sign(raw) for raw in mails()], ADA) == f"ed25519 {ADA}"


@pytest.mark.parametrize(
    "changed",
    [
        lambda raw: raw.replace(b"It has a reason", b"It has no reason"),
        lambda raw: raw + b"\n+ appended behind what was signed\n",
        lambda raw: b"From: Ada L <ada@example.org>\n" + raw,
        lambda raw: b"Subject: [PATCH v99 1/2] another\n" + raw,
    ],
    ids=["body", "appended", "second From", "second Subject"],
)
def test_what_was_changed_afterwards_is_not(
    sign: Callable[[bytes], bytes], changed: Callable[[bytes], bytes]
) -> None:
    cover, first, second = (sign(raw) for raw in mails())
    assert attested([cover, changed(first), second], ADA) == ""


def test_one_mail_without_a_signature_spoils_it(sign: Callable[[bytes], bytes]) -> None:
    cover, first, second = mails()
    assert attested([sign(cover), sign(first), second], ADA) == ""


def test_a_signature_of_somebody_else_does_not_count(sign: Callable[[bytes], bytes]) -> None:
    raws = [sign(raw) for raw in mails("Mal <mal@example.org>")]
    assert attested(raws, "mal@example.org") == ""


def test_a_key_that_is_in_no_keyring_does_not_count(
    sign: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    raws = [sign(raw) for raw in mails()]
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "empty"))
    assert attested(raws, ADA) == ""


def test_hostile_signatures_are_no_signatures() -> None:
    hostile = [
        b"X-Developer-Signature: v=((((; " + b"a" * 9000,
        b"DKIM-Signature: =?utf-\xd9?q?x?=",
    ]
    for header in hostile:
        assert attested([header + b"\n" + raw for raw in mails()], ADA) == ""


def test_without_a_sandbox_it_is_checked_all_the_same(
    sign: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: None)
    assert attested([sign(raw) for raw in mails()], ADA) == f"ed25519 {ADA}"


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A domain's key, published; its private half."""
    key = SigningKey.generate()
    public = base64.b64encode(bytes(key.verify_key)).decode()
    record = f"v=DKIM1; k=ed25519; p={public}".encode()
    monkeypatch.setattr(dkim.dnsplug, "_get_txt", lambda name, timeout: record)
    return base64.b64encode(bytes(key))


def dkim_signed(raw: bytes, private: bytes, **more: object) -> bytes:
    raw = raw.replace(b"\n", b"\r\n")
    signature = dkim.sign(
        raw, b"s", b"example.org", private, signature_algorithm=b"ed25519-sha256", **more
    )
    return bytes(signature) + raw


def test_a_domains_signature_vouches_for_its_own(dns: bytes) -> None:
    raw = dkim_signed(mails()[0], dns)
    assert of_mail(raw, ADA, "") == "DKIM example.org"
    assert of_mail(raw.replace(b"Why.", b"Yes."), ADA, "") == ""
    other = dkim_signed(mails("Linus <linus@example.com>")[0], dns)
    assert of_mail(other, "linus@example.com", "") == ""


def test_a_domains_signature_of_a_part_of_the_body_does_not(dns: bytes) -> None:
    raw = dkim_signed(mails()[0], dns, length=True)
    assert of_mail(raw + b"+ appended\r\n", ADA, "") == ""
