"""Debian's server for IMAP, with a mailbox for each address."""

import grp
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from antiphon.testing.ports import free_port
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS, until

PROGRAM: Final = shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin")
MISSING: Final = "Dovecot is not installed: apt-get install dovecot-imapd"
PASSWORD: Final = "correct-horse-battery"
SETTINGS: Final = """
base_dir = {home}/run
log_path = {home}/log
protocols = imap
listen = 127.0.0.1
ssl = {ssl}
{certificate}
disable_plaintext_auth = no
default_internal_user = {user}
default_login_user = {login}
default_internal_group = {group}
first_valid_uid = 1
first_valid_gid = 1
mail_location = maildir:{home}/mail/%u
mail_max_userip_connections = 100
imap_capability = {capability}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={home}/mail/%u
}}
service imap-login {{
  chroot =
  process_min_avail = 1
  service_count = 0
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {sealed}
    ssl = yes
  }}
}}
service imap {{
  process_min_avail = 2
  service_count = 0
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
"""
_NUMBERS = count(1)


class Dovecot:
    """A server; mails are laid into its mailboxes as a delivering server does."""

    def __init__(
        self, home: Path, *, capability: str = "", certificate: tuple[Path, Path] | None = None, port: int = 0
    ) -> None:
        """`home` has to be a folder into which everybody may look: its login process runs as nobody in particular."""
        self.home = home
        self.port, self.sealed_port = port or free_port(), free_port()
        own = pwd.getpwuid(os.getuid())
        user = pwd.getpwnam("dovecot") if own.pw_uid == 0 else own
        self._owner = user.pw_uid, user.pw_gid
        for name in ("run", "mail"):
            (home / name).mkdir()
        os.chown(home / "mail", *self._owner)
        sealed = "" if certificate is None else f"ssl_cert = <{certificate[0]}\nssl_key = <{certificate[1]}"
        settings = SETTINGS.format(
            home=home,
            port=self.port,
            sealed=0 if certificate is None else self.sealed_port,
            ssl="no" if certificate is None else "yes",
            certificate=sealed,
            user=user.pw_name,
            login="dovenull" if own.pw_uid == 0 else own.pw_name,
            group=grp.getgrgid(user.pw_gid).gr_name,
            uid=user.pw_uid,
            gid=user.pw_gid,
            password=PASSWORD,
            capability=capability,
        )
        (home / "dovecot.conf").write_text(settings, "utf-8")

    @contextmanager
    def running(self) -> Generator[None]:
        assert PROGRAM is not None
        command = [PROGRAM, "-F", "-c", str(self.home / "dovecot.conf")]
        with ending(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) as process:
            until(self._is_up, seconds=PROCESS_SECONDS)
            yield
            process.terminate()  # with its processes
            process.wait(PROCESS_SECONDS)

    def _is_up(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def folder(self, address: str) -> Path:
        """Where the mails of the address lie."""
        folder = self.home / "mail" / address
        if not folder.exists():
            for each in (folder, *(folder / name for name in ("tmp", "new", "cur"))):
                each.mkdir()
                os.chown(each, *self._owner)
        return folder

    def lay_in(self, address: str, mail: bytes) -> None:
        folder, name = self.folder(address), f"{next(_NUMBERS):09}.{os.getpid()}.test"
        written = folder / "tmp" / name
        written.write_bytes(mail)
        os.chown(written, *self._owner)
        written.rename(folder / "new" / name)

    def mails(self, address: str) -> list[bytes]:
        """Those that lie there, the oldest first."""
        folder = self.folder(address)
        while True:
            found = sorted([*(folder / "new").iterdir(), *(folder / "cur").iterdir()], key=lambda each: each.name)
            try:
                return [each.read_bytes() for each in found]
            except FileNotFoundError:
                continue  # the server has moved one meanwhile

    def count_anew(self, address: str) -> None:
        """Forgets the numbers of its mails, as a restored mailbox does: it has another UIDVALIDITY."""
        for file in self.folder(address).glob("dovecot*"):
            file.unlink()

    def seen(self, address: str) -> list[bytes]:
        """Those that are marked as seen."""
        found = sorted((self.folder(address) / "cur").iterdir())
        return [each.read_bytes() for each in found if "S" in each.name.partition(":2,")[2]]
