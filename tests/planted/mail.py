"""Bugs of e-mail and of Delta Chat."""

from tests.planted.bug import Bug

LETTERS = "channels/email/test_letters.py::"
CHECKS = "channels/email/test_checks.py::"
MAILBOX = "channels/email/test_mailbox.py::"
RECEPTION = "policy/test_reception.py::"

BUGS = (
    Bug(
        "the server that sends is not asked whether it takes the sender",
        "channels/email/channel.py",
        "            await client.mail(self._settings.address)\n",
        "",
        CHECKS + "test_a_folder_that_is_missing_and_a_sender_that_is_refused_are_told",
    ),
    Bug(
        "a wrong password is held for a broken connection",
        "channels/email/troubles.py",
        "        case aiosmtplib.SMTPAuthenticationError():\n",
        "        case ZeroDivisionError():\n",
        CHECKS + "test_a_wrong_password_is_told_with_its_setting[email]",
    ),
    Bug(
        "a wrong certificate is no reason of its own",
        "channels/email/troubles.py",
        "    if any(isinstance(each, ssl.SSLCertVerificationError) for each in causes):\n",
        "    if any(isinstance(each, ZeroDivisionError) for each in causes):\n",
        CHECKS + "test_a_certificate_that_proves_nothing_and_no_tls_are_told",
    ),
    Bug(
        "the servers of mailboxes are not asked",
        "channels/kind.py",
        "        return await opened.check_servers()\n",
        "        return []\n",
        CHECKS + "test_a_mailbox_that_does_not_open_is_not_written_unless_nobody_asks_it",
    ),
    Bug(
        "a mail that a program sent by itself is answered",
        "policy/reception.py",
        "    if request.is_automatic:\n",
        "    if request.is_automatic and request.is_suspended:\n",
        "engine/chats/test_reception.py::"
        "test_what_a_program_sent_by_itself_is_not_taken_in_and_hides_no_message[sqlite-True]",
    ),
    Bug(
        "what the core of Delta Chat fetches after an outage counts as new",
        "channels/deltachat/account.py",
        "FETCH_SECONDS = 20.0",
        "FETCH_SECONDS = 0.0",
        "channels/together/test_hour.py::test_an_outage_of_an_hour[sqlite-deltachat]",
    ),
    Bug(
        "what is forwarded in a language that is not known are the sender's words",
        "domain/repeated_words.py",
        "    return len(values) >= 3 and is_written\n",
        "    return len(values) >= 9 and is_written\n",
        LETTERS + "test_what_is_forwarded_in_any_language_is_not_its_senders[-Finnish]",
    ),
    Bug(
        "a program that begins a thread with each answer is answered for ever",
        "engine/chats/loops.py",
        "    if place.thread_id is None:\n        return False\n",
        "    if place.thread_id is not None:\n        return False\n",
        MAILBOX + "test_a_program_that_begins_a_thread_with_each_answer_is_stopped",
    ),
    Bug(
        "a sender whom nothing proves is heard",
        "policy/reception.py",
        "    if not request.is_proven:\n        return Admission.TELL_OWNERS\n",
        "",
        RECEPTION + "test_nobody_is_heard_whom_the_platform_does_not_prove",
    ),
    Bug(
        "results of another server prove a sender",
        "channels/email/proof.py",
        "        if head.split()[:1] == [authserv_id]:\n",
        "        if head:\n",
        LETTERS + "test_only_the_topmost_results_of_the_own_server_prove_a_sender[results14-False]",
    ),
    Bug(
        "a quoted part of an address proves another domain",
        "channels/email/proof.py",
        '((?:{_QUOTED.pattern}|[^\\s;\\"])+)")',
        '({_QUOTED.pattern}|[^\\s;]+)")',
        LETTERS + "test_only_the_topmost_results_of_the_own_server_prove_a_sender[results20-False]",
    ),
    Bug(
        "of several addresses in From, one is the sender",
        "channels/email/proof.py",
        "    if len(found) != 1:\n",
        "    if not found:\n",
        LETTERS + "test_a_sender_is_the_one_address_in_from[written10-None]",
    ),
    Bug(
        "a mail without a sender is answered",
        "channels/email/letter.py",
        '            case "return-path" if said.replace(" ", "") == "<>":\n',
        '            case "return-path" if said == "null":\n',
        LETTERS + "test_what_no_person_wrote_is_known[Return-Path: <>]",
    ),
    Bug(
        "what is hidden in HTML is read",
        "domain/html_text.py",
        'and not _HIDDEN.search(found.get("style", "").lower()) ',
        "",
        LETTERS + "test_of_html_only_what_people_see_is_read",
    ),
    Bug(
        "a forged mail takes the id of the genuine one",
        "engine/chats/take_in.py",
        "tell_of_unproven(tx, inbound.place, inbound.sender.id)\n            return Received(",
        "tell_of_unproven(tx, inbound.place, inbound.sender.id)\n            received = Received(",
        MAILBOX + "test_a_forged_mail_is_not_answered_and_owners_are_told_once_a_day[sqlite]",
    ),
)
