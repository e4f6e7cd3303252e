"""What `antiphon doctor` and `antiphon channels add` learn of a mailbox: its servers are asked, and no mail is sent."""

import shutil
import socket
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from antiphon.channels.deltachat.kind import DELTACHAT
from antiphon.channels.email import troubles
from antiphon.channels.email.kind import EMAIL
from antiphon.channels.kind import AnyKind
from antiphon.domain.chat_state import NO_CHATS
from antiphon.domain.check_result import CheckResult, Grade
from tests.channels.email.dovecot import PASSWORD, Dovecot
from tests.channels.email.post_office import AUTHSERV, PostOffice
from tests.channels.email.test_sealed import sealed_office
from tests.claims import requirement
from tests.cli.program import antiphon
from tests.engine.stage import config

ADDRESS = "checked@agents.test"


def look(kind: AnyKind, office: PostOffice, **more: Any) -> list[CheckResult]:
    """What the check says. Nothing that it says holds the password, and nothing is left in the mailbox."""
    section: dict[str, Any] = {
        "address": ADDRESS,
        "password": PASSWORD,
        "imap_host": "127.0.0.1",
        "imap_port": office.dovecot.port,
        "smtp_host": "127.0.0.1",
        "smtp_port": office.port,
        "plain": True,
        **({"authserv_id": AUTHSERV} if kind is EMAIL else {}),
        **more,
    }
    office.dovecot.folder(ADDRESS)
    ((_, given),) = config(**{f"channels__{kind.name}": section}).given_channels()
    found = list(kind.check(given, NO_CHATS, is_running=False))
    assert not any(section["password"] in each.detail + each.remedy for each in found)
    assert all(each.remedy for each in found if each.grade is not Grade.OK)
    assert office.dovecot.mails(ADDRESS) == []
    return found


@contextmanager
def rude_server(greeting: bytes = b"") -> Generator[int]:
    """Says that and nothing else, or nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = list[socket.socket]()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.sendall(greeting)
                held.append(connection)

        Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        for each in held:
            each.close()


@requirement("channels:1")
def test_a_mailbox_that_opens_is_named_with_how_soon_mails_are_seen(office: PostOffice) -> None:
    reading, sending = look(EMAIL, office)
    assert (reading.grade, reading.detail) == (Grade.OK, f"{ADDRESS}, INBOX; new mails are seen at once")
    assert (sending.grade, sending.name) == (Grade.OK, "email sending")
    assert f"takes mails of {ADDRESS}" in sending.detail and office.signed_in == [ADDRESS]


@requirement("channels:1")
def test_a_server_without_idle_is_told(office: PostOffice) -> None:
    home = Path(tempfile.mkdtemp(prefix="dovecot-"))
    home.chmod(0o755)
    try:
        dovecot = Dovecot(home, capability="IMAP4rev1 LITERAL+ SASL-IR LOGIN-REFERRALS ID ENABLE")
        dovecot.folder(ADDRESS)
        with dovecot.running():
            reading, _ = look(EMAIL, office, imap_port=dovecot.port)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    assert reading.grade is Grade.OK and "no IDLE" in reading.detail


@requirement("channels:1")
@pytest.mark.parametrize("kind", [EMAIL, DELTACHAT], ids=lambda kind: kind.name)
def test_a_wrong_password_is_told_with_its_setting(office: PostOffice, kind: AnyKind) -> None:
    found = look(kind, office, password="wrong-horse-battery")
    assert {each.grade for each in found} == {Grade.BROKEN}
    assert all("password" in each.detail + each.remedy for each in found) and len(found) == (2 if kind is EMAIL else 1)


@requirement("channels:1")
def test_a_mailbox_of_delta_chat_that_opens_is_named(office: PostOffice) -> None:
    (found,) = look(DELTACHAT, office)
    assert (found.grade, found.detail) == (Grade.OK, f"{ADDRESS}: its servers take the password")


@requirement("channels:1")
def test_a_folder_that_is_missing_and_a_sender_that_is_refused_are_told(office: PostOffice) -> None:
    office.refused.add(ADDRESS)
    reading, sending = look(EMAIL, office, folder="Agents")
    assert reading.grade is Grade.BROKEN and "'Agents'" in reading.detail and "`folder`" in reading.detail
    assert sending.grade is Grade.BROKEN and "`address`" in sending.detail and "550" in sending.detail


@requirement("channels:1")
def test_servers_that_are_away_or_not_those_are_told_with_their_settings(office: PostOffice) -> None:
    reading, sending = look(EMAIL, office, imap_port=9, smtp_port=9)
    assert "`imap_port`" in reading.detail and "`smtp_port`" in sending.detail
    reading, sending = look(EMAIL, office, imap_host="nowhere.invalid", smtp_host="nowhere.invalid", plain=False)
    assert "`imap_host`" in reading.detail and "`smtp_host`" in sending.detail
    reading, sending = look(EMAIL, office, imap_port=office.port, smtp_port=office.dovecot.port)
    assert reading.grade is Grade.BROKEN and sending.grade is Grade.BROKEN
    with rude_server(b"\x00\xff" * 5000 + b"\r\n") as port:
        reading, sending = look(EMAIL, office, imap_port=port, smtp_port=port)
    assert reading.grade is Grade.BROKEN and sending.grade is Grade.BROKEN


@requirement("channels:1")
def test_servers_that_say_nothing_are_given_up_in_time(office: PostOffice) -> None:
    assert troubles.LOOK_SECONDS == 10
    with rude_server() as port:
        reading, sending = look(EMAIL, office, imap_port=port, smtp_port=port)
    assert "did not answer in time" in reading.detail and "did not answer in time" in sending.detail


@requirement("channels:1")
def test_a_certificate_that_proves_nothing_and_no_tls_are_told(office: PostOffice) -> None:
    with sealed_office() as (sealed, certificate):
        more: dict[str, Any] = {"plain": False, "imap_port": sealed.dovecot.sealed_port}
        reading, sending = look(EMAIL, sealed, ca_file=str(certificate), **more)
        assert reading.grade is Grade.OK and sending.grade is Grade.OK
        reading, sending = look(
            EMAIL, sealed, ca_file=str(certificate), imap_host="localhost", smtp_host="localhost", **more
        )
        assert "certificate" in reading.detail and "`imap_host`" in reading.detail
        assert "certificate" in sending.detail and "`smtp_host`" in sending.detail
        reading, sending = look(EMAIL, sealed, **more)
        assert "`ca_file`" in reading.detail and "`ca_file`" in sending.detail
        sealed.signed_in.clear()
    reading, sending = look(EMAIL, office, plain=False)
    assert "TLS" in reading.detail and "`imap_port`" in reading.detail
    assert "TLS" in sending.detail and "`smtp_port`" in sending.detail
    assert not office.signed_in


@requirement("config:1")
def test_a_mailbox_that_does_not_open_is_not_written_unless_nobody_asks_it(home: Path, office: PostOffice) -> None:
    home.mkdir(exist_ok=True)
    ports = ["--set", f"imap_port={office.dovecot.port}", "--set", f"smtp_port={office.port}", "--set", "plain=true"]
    named = ["--set", f"address={ADDRESS}", "--set", "imap_host=127.0.0.1", "--set", f"authserv_id={AUTHSERV}"]
    add = ["channels", "add", "email", *named, *ports, "--env", "password=MAIL_PASSWORD"]
    wrong = {"MAIL_PASSWORD": "wrong-horse-battery"}
    refused = antiphon(*add, home=home, env=wrong)
    assert refused.returncode != 0 and "nothing is written" in refused.stderr, refused.stdout + refused.stderr
    assert "`password`" in refused.stderr and not (home / "antiphon.toml").exists()
    added = antiphon(*add, home=home, env={"MAIL_PASSWORD": PASSWORD})
    assert added.returncode == 0 and "new mails are seen at once" in added.stdout, added.stdout + added.stderr
    (home / "antiphon.toml").unlink()
    assert antiphon(*add, "--no-check", home=home, env=wrong).returncode == 0
    assert "password_env" in (home / "antiphon.toml").read_text("utf-8") and not office.dovecot.mails(ADDRESS)
