"""Stands for a command that a fork of `tests/cli/preloaded.py` carries out; imports little, to begin at once."""

import json
import os
import signal
import socket
import sys


def main() -> None:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    directory = os.getcwd()  # noqa: PTH109 - pathlib takes as long as all the rest
    request = json.dumps([sys.argv[2:], directory, dict(os.environ), False]).encode() + b"\n"
    sent = socket.send_fds(connection, [request], [0, 1, 2])
    connection.sendall(request[sent:])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: connection.send(bytes([number])))
    code = int(connection.makefile().readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
