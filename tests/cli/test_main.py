"""The command line itself: help, unknown options, and every option and command that a message names."""

import subprocess
import sys

import pytest

from rpim.cli.main import app

COMMANDS = [command.callback.__name__ for command in app.registered_commands]


def test_rpim_alone_prints_the_help(command):
    _, out, err = command()
    assert "Traceback" not in err
    for name in COMMANDS:
        assert f" {name} " in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_and_refuses_an_unknown_option(name, command):
    code, out, err = command(name, "--help")
    assert (code, err) == (0, "")
    assert f"rpim {name}" in out or f"{name} [OPTIONS]" in out
    code, out, err = command(name, "--nosuch")
    assert (code, out) == (2, "")
    assert "No such option: --nosuch" in err


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_a_command_without_arguments_says_what_is_missing(name, command):
    code, out, err = command(name)
    assert (code, out) == (2, "")
    assert "Missing" in err
    assert "Traceback" not in err


def test_a_reader_that_closes_the_pipe_sees_no_traceback(environment):
    process = subprocess.Popen(
        [sys.executable, "-c", "from rpim.cli.main import main; main()"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait(timeout=30)
