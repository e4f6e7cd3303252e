"""Bugs in following and waking."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "a stream sends what is above its reader",
        "feed/follow.py",
        "yield view.encode(event) if may_enter(event.classification, clearance) else view.encode_hidden(event)",
        "yield view.encode(event)",
        "gateway/test_clearances.py::test_a_person_reads_a_session_that_rose_event_by_event[sqlite]",
    ),
    Bug(
        "a piece of a reply is shown to readers below its prompt",
        "feed/follow.py",
        "        if not may_enter(delta.made_of, self.clearance):\n            return\n",
        "",
        "gateway/test_clearances.py::test_a_piece_of_a_reply_is_as_secret_as_its_prompt[sqlite]",
    ),
    Bug(
        "an open stream keeps the clearance that it began with",
        "feed/follow.py",
        "        self.rights_changed += 1",
        "        pass",
        "gateway/test_clearances.py::test_an_open_stream_decides_anew_once_rights_have_changed[sqlite]",
    ),
    Bug(
        "a frame holds all of the tail",
        "feed/follow.py",
        "if size >= FRAME_BYTES or self.cursor >= limit:",
        "if self.cursor >= limit:",
        "feed/test_follow.py::test_a_reader_is_given_no_more_at_once_than_it_can_take[sqlite]",
    ),
    Bug(
        "a page of events has thousands",
        "feed/follow.py",
        "PAGE_EVENTS = 500",
        "PAGE_EVENTS = 5_000",
        "feed/test_follow.py::test_one_look_at_a_log_reads_so_many_events_and_bytes_and_no_more[sqlite]",
    ),
    Bug(
        "a frame has megabytes",
        "feed/follow.py",
        "FRAME_BYTES = 256 * 1024",
        "FRAME_BYTES = 256 * 1024 * 1024",
        "feed/test_follow.py::test_a_reader_is_given_no_more_at_once_than_it_can_take[sqlite]",
    ),
    Bug(
        "a piece of a reply overtakes the events that it follows",
        "feed/follow.py",
        "while self._deltas and self._deltas[0].after <= self.cursor:",
        "while self._deltas:",
        "gateway/test_sse.py::test_a_piece_waits_for_the_events_that_it_follows[sqlite]",
    ),
    Bug(
        "a reader begins without what happened before it listened",
        "feed/follow.py",
        "        feed.readers.add(reader)\n        self._mark(session)",
        "        feed.readers.add(reader)",
        "gateway/test_sse.py::test_a_cursor_brings_only_what_came_after_it[sqlite-after]",
    ),
    Bug(
        "a tail that was cut claims to reach further back",
        "feed/follow.py",
        "            self.start = oldest.events[-1].seq",
        "            self.start = oldest.events[0].seq - 1",
        "feed/test_follow.py::test_a_reader_is_given_no_more_at_once_than_it_can_take[sqlite]",
    ),
    Bug(
        "the hub stops in the middle of a long log",
        "feed/follow.py",
        "                if slice.events and feed.head < slice.last_seq:\n                    self._mark(session)\n",
        "",
        "feed/test_follow.py::test_a_reader_is_given_no_more_at_once_than_it_can_take[sqlite]",
    ),
    Bug(
        "pieces pile up for a reader that does not read",
        "feed/follow.py",
        "if self.pending_length < MAX_PENDING_LENGTH:",
        "if self.pending_length >= 0:",
        "gateway/test_sse.py::test_a_flood_of_pieces_does_not_grow_a_reader_that_does_not_read[sqlite]",
    ),
    Bug(
        "a crowd is woken for each newcomer",
        "feed/follow.py",
        "                if feed.head == cursor:\n                    continue",
        "                if feed.head == -1:\n                    continue",
        "feed/test_follow.py::test_a_crowd_that_subscribes_is_not_woken_for_each_newcomer[sqlite]",
    ),
    Bug(
        "a quiet stream is not kept alive",
        "feed/follow.py",
        "self.view.keep_alive and now - self.last_frame_at >= KEEP_ALIVE_SECONDS:",
        "self.view.keep_alive and now - self.last_frame_at >= 100 * KEEP_ALIVE_SECONDS:",
        "gateway/test_sse.py::test_a_quiet_stream_is_kept_alive_by_comments[sqlite]",
    ),
    Bug(
        "one who no longer listens takes the others along",
        "feed/local.py",
        "subscribers.pop(token, None) is not None and not subscribers:",
        "subscribers.pop(token, None) is not None:",
        "feed/test_local.py::test_who_no_longer_listens_is_not_woken_and_others_are",
    ),
)
