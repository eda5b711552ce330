"""The command line itself: help, unknown options, and every option and command that a message names."""

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

import rpim
from rpim.cli.main import app

COMMANDS = [command.callback.__name__ for command in app.registered_commands]


def test_rpim_alone_prints_the_help(command):
    code, out, err = command()
    assert (code, err) == (2, "")
    for name in COMMANDS:
        assert f" {name} " in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_and_refuses_an_unknown_option(name, command):
    code, out, err = command(name, "--help")
    assert (code, err) == (0, "")
    assert f"rpim {name}" in out or f"{name} [OPTIONS]" in out
    code, out, err = command(name, "--nosuch")
    assert (code, out) == (2, "")
    assert re.match(r"rpim: No such option:? '?--nosuch", err)  # and those that are spelled like it
    assert err.endswith(f" See rpim {name} --help.\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_a_command_without_arguments_says_what_is_missing(name, command):
    code, out, err = command(name)
    assert (code, out) == (2, "")
    assert err.startswith("rpim: Missing ")
    assert err.endswith(f". See rpim {name} --help.\n")
    assert err.count("\n") == 1


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
    process.wait(timeout=120)


SOURCE = Path(rpim.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@functools.cache
def options_of(name):
    found = typer.main.get_command(app)
    parameters = [*found.params, *found.commands[name].params]
    return {option for parameter in parameters for option in parameter.opts} | {"--help"}


def messages():
    """Every string of the package but its docstrings, with the values of an f-string left out: file, line, text."""
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        skipped = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                skipped.add(node.value)
            if isinstance(node, ast.JoinedStr):
                skipped |= set(node.values)
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "VALUE" for part in node.values]
                yield file.relative_to(SOURCE), node.lineno, "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
                yield file.relative_to(SOURCE), node.lineno, node.value


def named_but_missing(text, allowed=None):
    """The commands and options in a text that do not exist; an option after a command has to be one of its own."""
    before, *calls = re.split(r"\brpim (?=[a-z]+\b)", text)
    missing = [option for option in OPTION.findall(before) if option not in (allowed or ALL_OPTIONS) | FOREIGN]
    for call in calls:
        name = re.match("[a-z]+", call)[0]
        if name in COMMANDS:
            missing += [option for option in OPTION.findall(call) if option not in options_of(name)]
        elif name not in PROSE:
            missing.append(f"rpim {name}")
    return missing


ALL_OPTIONS = set().union(*(options_of(name) for name in COMMANDS))
FOREIGN = {"--head", "--n-"}  # of ray start, and half of an option
PROSE = {"on", "only", "instead", "features", "can"}  # "only rim and rpim can": no commands


@pytest.mark.slow
def test_every_command_and_option_that_a_message_names_exists():
    assert named_but_missing("rpim embde, or rpim classes RUN --no-labels") == ["rpim embde", "--no-labels"]
    assert named_but_missing("give --nosuch") == ["--nosuch"]
    wrong = {(str(file), line): missing for file, line, text in messages() if (missing := named_but_missing(text))}
    assert wrong == {}


def test_every_command_and_option_in_the_documentation_exists():
    root = SOURCE.parents[1]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    assert len(pages) > 1
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    shown = [match[0] for line in lines for match in re.finditer(r"(?<=`)rpim [a-z][^`]*|^rpim [a-z].*", line)]
    assert len(shown) > 20
    assert {text: missing for text in shown if (missing := named_but_missing(text.split("#")[0]))} == {}


def table(name, rows, delimiter=",", encoding="utf-8"):
    Path(name).write_text("\n".join(delimiter.join(row) for row in rows) + "\n", encoding=encoding)


TEXTS = [(f"where is my card number {i}", ("card", "", "pin")[i % 3], str(i % 7)) for i in range(30)]


def not_called_text(name):
    table(name, [("utterance", "intent", "priority"), *TEXTS])


def two_of_prose(name):
    table(
        name, [("question", "answer", "intent"), *((text, f"it is not so {text}", label) for text, label, _ in TEXTS)]
    )


def latin(name):
    table(name, [("text", "label"), *((f"{text} café", label) for text, label, _ in TEXTS)], encoding="latin-1")


def latin_far_down(name):
    rows = [*((text, label) for text, label, _ in TEXTS * 20), ("café", "card")]
    table(name, [("text", "label"), *rows], encoding="latin-1")


def utf16(name):
    table(name, [("text", "label"), *((text, label) for text, label, _ in TEXTS)], encoding="utf-16")


def not_called_text_in_json(name):
    lines = [json.dumps({"utterance": text, "intent": label}) for text, label, _ in TEXTS]
    Path(name).write_text("\n".join(lines))


def not_called_text_in_parquet(name):
    texts, labels, _ = zip(*TEXTS, strict=True)
    pq.write_table(pa.table({"utterance": texts, "intent": labels}), name)


def of_another_kind(name):
    Path(name).write_bytes(b"PK")


COLUMNS = "only utterance ('where is my card number 0'), intent ('card')"
UTF8 = "is not encoded in UTF-8 but probably in WINDOWS-1252: save it as CSV UTF-8"
MISTAKES = {
    "columns of other names": ("t.csv", not_called_text, COLUMNS, True),
    "tabs": ("t.tsv", not_called_text, "has no column called text", True),
    "two columns of texts": ("t.csv", two_of_prose, "with --text-column (question or answer).", False),
    "JSON lines": ("t.jsonl", not_called_text_in_json, "only utterance ('where is my card number 0') and intent", True),
    "parquet": ("t.parquet", not_called_text_in_parquet, "only utterance ('where is my card number 0') and int", True),
    "latin-1": ("t.csv", latin, UTF8, False),
    "latin-1 after the first rows": ("t.csv", latin_far_down, UTF8, False),
    "utf-16": ("t.csv", utf16, "run iconv -f UTF-16 -t UTF-8 t.csv > t-utf8.csv", False),
    "a spreadsheet": ("t.xlsx", of_another_kind, "save it as CSV UTF-8, with the suffix .csv.", False),
    "packed": ("t.csv.gz", of_another_kind, "unpack it first.", False),
    "an image": ("t.jpg", of_another_kind, "give the folder with the images.", False),
    "lines": ("t.txt", of_another_kind, "make it a .csv file with the header text and a line per text.", False),
}
CALLS = {
    "discover": ("FILE", "-o", "out"),
    "estimate": ("FILE",),
    "embed": ("FILE", "-o", "out.parquet"),
    "predict": ("run", "FILE"),
    "extend": ("run", "FILE", "-o", "out"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_commonest_mistakes_are_named_with_what_to_do(mistake, name, animals, refused):
    file, make, message, offers_command = MISTAKES[mistake]
    make(file)
    before = sorted(Path().iterdir())
    typed = [name, *(file if word == "FILE" else word for word in CALLS[name])]
    err = refused(message, *typed)
    assert {option for option in OPTION.findall(err) if option not in options_of(name)} == set()
    labels = [] if name == "predict" else ["--label-column", "intent"]
    offered = " ".join(["such as rpim", *typed, "--text-column", "utterance", *labels])
    assert (offered in err) == offers_command
    assert sorted(Path().iterdir()) == before


def test_dates_are_not_offered_as_labels(refused):
    table("t.csv", [("day", "question", "topic"), *((f"2024-01-{10 + i % 3}", *TEXTS[i][:2]) for i in range(20))])
    refused("-o out --text-column question --label-column topic\n", "discover", "t.csv", "-o", "out")


def test_the_offered_command_leaves_out_what_was_given(refused):
    not_called_text("t.csv")
    Path("labels.txt").write_text("card\npin\n" * 15)
    err = refused("--text-column utterance\n", "discover", "t.csv", "-o", "out", "--labels", "labels.txt")
    assert "--label-column" not in err


def test_without_a_column_of_labels_the_columns_are_listed(refused):
    not_called_text("t.csv")
    refused(
        "t.csv has no column called label, only intent ('card') and priority ('0.0'): name the one with the labels "
        "with --label-column, give --labels FILE, or --no-labels to cluster the rows, such as rpim discover t.csv -o "
        "out --text-column utterance --label-column intent",
        *("discover", "t.csv", "-o", "out", "--text-column", "utterance"),
    )
    table("iris.csv", [("length", "width", "species"), *((f"{i}.5", "1.2", ("a", "b")[i % 2]) for i in range(20))])
    refused("such as rpim estimate iris.csv --label-column species", "estimate", "iris.csv")
