"""Mail servers over TLS, from the start and by STARTTLS; and several mailboxes."""

import os
import shutil
import ssl
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.channels.email.dovecot import MISSING, PROGRAM, Dovecot
from tests.channels.email.mail_platform import MailPlatform
from tests.channels.email.post_office import PostOffice, post_office
from tests.channels.email.test_mailbox import opened, until_shown
from tests.channels.telegram.bots import until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import Json, serve

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(PROGRAM is None, reason=MISSING)]

STARTTLS_PORT = 143
"""The only one on which the adapter does not begin with TLS."""


def certificate_in(folder: Path) -> tuple[Path, Path]:
    """One that this machine signs itself, with its key."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mail.test")]),
    )
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


@contextmanager
def sealed_office(port: int = 0) -> Generator[tuple[PostOffice, Path]]:
    """Servers that speak TLS only, with the file of the certificate to trust."""
    home = Path(tempfile.mkdtemp(prefix="dovecot-"))
    home.chmod(0o755)
    try:
        certificate, key = certificate_in(home)
        dovecot = Dovecot(home, certificate=(certificate, key), port=port)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        with dovecot.running(), post_office(dovecot, tls_context=context) as office:
            yield office, certificate
    finally:
        shutil.rmtree(home, ignore_errors=True)


@requirement("channels:1")
@pytest.mark.parametrize("is_from_start", [True, False], ids=["TLS from the start", "STARTTLS"])
async def test_mails_come_and_go_over_tls(open_home: OpenHome, is_from_start: bool) -> None:
    if not is_from_start and os.getuid() != 0:
        pytest.skip("needs a port that only root may open")
    with sealed_office(0 if is_from_start else STARTTLS_PORT) as (office, certificate):
        port = office.dovecot.sealed_port if is_from_start else STARTTLS_PORT
        more: Json = {"plain": False, "ca_file": str(certificate), "imap_port": port}
        async with opened(open_home, office, **more) as (_, platform):
            await platform.write("ann", "hello")
            await until_shown(platform, "ann", "echo: hello")
            assert platform.account in office.signed_in and office.sealed == {platform.account: True}


@requirement("channels:1")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["unknown", "of another name"])
async def test_a_certificate_that_proves_nothing_is_told_and_no_password_is_sent(
    open_home: OpenHome, host: str
) -> None:
    with sealed_office() as (office, certificate):
        trusted = None if host == "127.0.0.1" else str(certificate)
        more: Json = {"plain": False, "ca_file": trusted, "imap_port": office.dovecot.sealed_port, "imap_host": host}
        async with opened(open_home, office, **more) as (served, _):

            async def is_told() -> bool:
                rows = await served.app.inside.accounts.list()
                return any("certificate" in (row.trouble or "") for row in rows)

            try:
                await until(is_told)
            except TimeoutError:
                raise AssertionError([row.trouble for row in await served.app.inside.accounts.list()]) from None
        assert not office.signed_in


@requirement("channels:1")
async def test_each_of_several_mailboxes_answers_by_itself(open_home: OpenHome, office: PostOffice) -> None:
    home, work = MailPlatform(office), MailPlatform(office)
    accounts = {"home": home.section(""), "work": work.section("")}
    async with serve(open_home, {"channels": {"email": {"accounts": accounts}}}) as served:
        await home.write("ann", "to the home")
        await work.write("ann", "to the work")
        await until_shown(home, "ann", "echo: to the home")
        await until_shown(work, "ann", "echo: to the work")
        rows = {row.account: row.name for row in await served.app.inside.accounts.list()}
        assert rows == {"home": home.account, "work": work.account}
