"""Bugs of what a person may cost: files, messages that wait, backlogs."""

from tests.planted.bug import Bug

CHATS = "engine/chats"
TESTS = "engine/chats/test_held_messages.py"
COPIES = "engine/access/test_costs_of_copies.py"
RECEIVED = "engine/chats/test_received_files.py"

BUGS = (
    Bug(
        "a message whose file cannot be written fails with it",
        f"{CHATS}/uploads.py",
        "    except (Conflict, Unavailable) as error:\n",
        "    except ZeroDivisionError as error:\n",
        f"{RECEIVED}::test_a_message_whose_file_cannot_be_written_is_taken_in_and_says_so",
    ),
    Bug(
        "a long name loses its ending",
        "domain/attachments.py",
        "        stem = stem[:-1]\n",
        "        stem, ending = stem[:-1], ending[:-1]\n",
        f"{RECEIVED}::test_a_name_fits_every_system_and_keeps_its_ending",
    ),
    Bug(
        "commands write where files of people lie",
        "tools/sandbox/profile.py",
        'yield ("--ro-bind", str(profile.received)',
        'yield ("--bind", str(profile.received)',
        f"{RECEIVED}::test_a_command_reads_what_was_received_and_cannot_change_it",
    ),
    Bug(
        "a message overtakes one that waits for its files",
        f"{CHATS}/take_in.py",
        "    if inbound.unfetched or holding.open_ms or await held_messages.is_waiting_in(tx, inbound.place):\n",
        "    if inbound.unfetched or holding.open_ms:\n",
        f"{TESTS}::test_nobody_waits_for_the_file_of_another_and_a_chat_keeps_its_order",
    ),
    Bug(
        "files of guests take the owner's place, too",
        f"{CHATS}/held.py",
        "MOST_OF_GUESTS = MOST_AT_ONCE - 1",
        "MOST_OF_GUESTS = MOST_AT_ONCE",
        f"{TESTS}::test_owners_go_first_and_guests_leave_them_a_place",
    ),
    Bug(
        "files that wait are not counted in their sender's share",
        "engine/access/allowances.py",
        "shares.stored_bytes - taken.stored_bytes - held.size",
        "shares.stored_bytes - taken.stored_bytes",
        f"{TESTS}::test_bytes_on_disk_stay_within_the_share_and_are_free_again_with_the_session",
    ),
    Bug(
        "files of members who do not address the agent are fetched",
        "policy/uploads.py",
        "    if not room.is_addressed:\n        return FileVerdict.ASIDE\n",
        "",
        f"{TESTS}::test_files_of_members_who_do_not_address_the_agent_are_not_fetched",
    ),
    Bug(
        "messages of an outage count as if they were written now",
        f"{CHATS}/entry.py",
        "at_ms if inbound.sent_at is None else min(milliseconds(inbound.sent_at), at_ms)",
        "at_ms",
        f"{TESTS}::test_what_people_wrote_during_an_outage_is_taken_in",
    ),
    Bug(
        "a date ahead is believed",
        f"{CHATS}/entry.py",
        "min(milliseconds(inbound.sent_at), at_ms)",
        "milliseconds(inbound.sent_at)",
        f"{TESTS}::test_a_date_ahead_buys_nothing",
    ),
    Bug(
        "a backlog beyond its sender's pace is dropped",
        f"{CHATS}/holding.py",
        "    if not is_late or not isinstance(error, Limited):\n",
        "    if isinstance(error, Limited):\n",
        f"{TESTS}::test_a_backlog_is_taken_in_at_a_rate_and_in_order_and_nothing_of_it_is_dropped",
    ),
    Bug(
        "a fork is not counted in its maker's share",
        "engine/sessions/forks.py",
        "    await rows.add_stored_bytes(tx, session.row, str(standing.principal), size)\n",
        "",
        f"{COPIES}::test_forks_count_for_who_made_them_and_are_refused_before_a_row_is_written",
    ),
    Bug(
        "metadata grows each time that its session is opened",
        "engine/sessions/metadata.py",
        "    merged = {**before, **given}\n",
        "    merged = {**given}\n",
        f"{COPIES}::test_metadata_does_not_grow_by_opening_again_and_counts_for_who_writes_it",
    ),
    Bug(
        "guests may use up the day of all",
        "config/sections/limits.py",
        "tokens=guests.tokens if self.guests.tokens is None else self.guests.tokens",
        "tokens=self.guests.tokens",
        f"{COPIES}::test_guests_have_half_of_a_day_unless_a_setting_says_more_and_owners_a_reserve",
    ),
    Bug(
        "damage of one chat stops all chats",
        f"{CHATS}/reception.py",
        'error.code != "store_corrupt" or',
        "True or",
        "channels/telegram/test_bad_input.py::test_damage_of_one_chat_holds_up_no_other",
    ),
)
