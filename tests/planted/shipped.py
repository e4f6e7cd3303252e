"""Bugs in the tools that come with Antiphon and are no session tools."""

from tests.planted.bug import Bug

FILES = "tools/test_files.py"
REFUSED = f"{FILES}::test_what_cannot_be_done_is_refused_and_leaves_everything_as_it_was"

BUGS = (
    Bug(
        "files leads out of the workspace",
        "engine/sessions/session_files.py",
        '    if ".." in parts:\n        raise _invalid(text, "no \'..\'")\n',
        "",
        f"{REFUSED}[sqlite-above]",
    ),
    Bug(
        "files answers for what was sent to others",
        "engine/sessions/session_files.py",
        "        if parts[2:3] != (workspace.received.path.name,):\n            raise _missing(text)\n",
        "",
        f"{FILES}::test_files_that_people_sent_are_read_and_never_changed[sqlite]",
    ),
    Bug(
        "files follows a link",
        "engine/sessions/session_files.py",
        "            raise _no_file(path, kind)\n        flags = os.O_RDONLY | os.O_NOFOLLOW |",
        "            pass\n        flags = os.O_RDONLY |",
        f"{REFUSED}[sqlite-a link out]",
    ),
    Bug(
        "files changes what people sent",
        "engine/sessions/session_files.py",
        "    if path.is_received:\n        raise Denied(",
        "    if False:\n        raise Denied(",
        f"{FILES}::test_files_that_people_sent_are_read_and_never_changed[sqlite]",
    ),
    Bug(
        "files fills the disk",
        "engine/sessions/session_files.py",
        "        _refuse_full(top, len(data), most_bytes)\n",
        "",
        f"{FILES}::test_a_workspace_that_is_full_takes_nothing_more[sqlite]",
    ),
    Bug(
        "files writes where a workspace is too deep",
        "engine/sessions/session_files.py",
        ' or path.count("/") > MAX_LISTED_DEPTH',
        "",
        f"{FILES}::test_a_workspace_whose_directories_are_too_deep_takes_nothing_more[sqlite]",
    ),
    Bug(
        "a script that is written again is not executable any more",
        "engine/sessions/session_files.py",
        "        mode = stat.S_IMODE(state.st_mode) & 0o777 | FILE_MODE\n",
        "",
        f"{FILES}::test_a_script_stays_executable[sqlite]",
    ),
    Bug(
        "a long file is cut within a character",
        "engine/sessions/session_files.py",
        "    cut = data[start:most_bytes]\n    for less in range(4):",
        "    cut = data[start:most_bytes]\n    for less in range(1):",
        f"{FILES}::test_a_long_file_is_read_on_between_characters[sqlite]",
    ),
    Bug(
        "what is read from files is not what the workspace was made of",
        "policy/shipped_tools.py",
        "    FILES: ShippedTool(uses_workspace=True, stays_in_session=True),",
        "    FILES: ShippedTool(stays_in_session=True),",
        f"{FILES}::test_what_is_read_carries_what_the_workspace_was_made_of[sqlite]",
    ),
    Bug(
        "the profile chat offers everything",
        "policy/shipped_tools.py",
        "    return tool not in SESSION_TOOLS and tool not in SHIPPED_TOOLS\n",
        "    return True\n",
        f"{FILES}::test_the_profile_chat_offers_few_tools_and_leaves_those_of_others_alone[sqlite]",
    ),
    Bug(
        "message is offered where it reaches nothing",
        "policy/session_tools.py",
        "    if not has_channels:\n        names -= {MESSAGE_TOOL}\n",
        "",
        f"{FILES}::test_the_profile_chat_offers_few_tools_and_leaves_those_of_others_alone[sqlite]",
    ),
)
