"""What of ssh's log the person who logs in gets to see."""

from __future__ import annotations

import os

from fastcopy.connection.ssh_conversation import Conversation


def shown(*pieces: str) -> str:
    """Return what stands on the terminal after ssh has logged `pieces`."""
    read_fd, write_fd = os.pipe()
    conversation = Conversation(write_fd)
    for piece in pieces:
        conversation.hear(piece)
    os.close(write_fd)
    with os.fdopen(read_fd, encoding="utf-8", newline="") as terminal:
        return terminal.read()


def test_what_a_one_time_code_server_tells_is_shown() -> None:
    """ssh logs the server's instructions (sshconnect2.c), and with -E they would not reach the terminal."""
    log = (
        "debug1: Next authentication method: keyboard-interactive\n"
        "Enter a code or choose: 1. push to your phone\n"
        "debug1: Authentications that can continue: keyboard-interactive\n"
        "Permission denied, please try again.\n"
        'Authenticated to t ([127.0.0.1]:22) using "keyboard-interactive".\n'
        "Transferred: sent 1, received 1 bytes, in 0.1 seconds\n"
    )
    assert shown(log) == "Enter a code or choose: 1. push to your phone\r\nPermission denied, please try again.\r\n"


def test_lines_that_come_in_pieces_are_shown_whole() -> None:
    """A FIFO keeps no line together."""
    assert shown("debug1: Next authentication method: pass", "word\nWro", "ng, try again.\n") == "Wrong, try again.\r\n"


def test_a_key_added_to_known_hosts_is_news() -> None:
    """As with ssh, whether a password is asked or not."""
    assert shown("Warning: Permanently added 'h' (ED25519) to the list of known hosts.\r\n") == (
        "Warning: Permanently added 'h' (ED25519) to the list of known hosts.\r\n"
    )


def test_what_becomes_the_jobs_error_is_not_shown_twice() -> None:
    """The end of the login is told once, as the error."""
    log = (
        "debug1: Next authentication method: password\n"
        "root@h: Permission denied (publickey,password).\n"
        "Connection closed by 127.0.0.1 port 22\n"
    )
    assert shown(log) == ""


def test_a_key_login_shows_nothing() -> None:
    """Where nobody is asked nothing is told."""
    assert shown("debug1: Next authentication method: publickey\nsomething odd\n") == ""


def test_a_server_cannot_command_the_terminal() -> None:
    """Control characters come out escaped."""
    log = "debug1: Next authentication method: keyboard-interactive\n\x1b]0;owned\x07code:\n"
    assert shown(log) == "\\x1b]0;owned\\x07code:\r\n"
