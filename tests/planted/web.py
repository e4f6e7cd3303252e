"""Bugs by which pages of the web reach what they must not, or agents reach pages that nobody allowed."""

from tests.planted.bug import Bug

_HOSTILE = "tools/web/test_hostile_pages.py::"
_CALLS = "tools/test_fetch_page.py::"
BUGS = (
    Bug(
        "an address is checked once and looked up again",
        "tools/web/network.py",
        "await AnyIOBackend().connect_tcp(str(answer), port, timeout=CONNECT_SECONDS)",
        "await AnyIOBackend().connect_tcp(str((await network.look_up(host))[0]), port, timeout=CONNECT_SECONDS)",
        f"{_HOSTILE}test_a_name_whose_answers_change_is_connected_to_as_it_was_checked",
    ),
    Bug(
        "only the first address of a name is checked",
        "tools/web/network.py",
        "    for answer in answers:\n        if not network.admits(",
        "    for answer in answers[:1]:\n        if not network.admits(",
        f"{_HOSTILE}test_a_name_with_one_private_address_is_not_connected_to[one public and one private]",
    ),
    Bug(
        "the addresses of the gateway's own name are reached",
        "tools/web/network.py",
        "(answer in own or network.is_this_machine(answer))",
        "network.is_this_machine(answer)",
        f"{_HOSTILE}test_the_addresses_of_the_gateways_own_name_are_refused",
    ),
    Bug(
        "a redirect is followed as it comes",
        "tools/web/fetching.py",
        "        if denied := self._rules.refusal_of(address):\n",
        "        if False and (denied := self._rules.refusal_of(address)):\n",
        f"{_HOSTILE}test_every_redirect_is_checked_again[http://example.org:22/-page_refused]",
    ),
    Bug(
        "an allowed host leads on to another",
        "tools/web/fetching.py",
        "            if request.stays and _plain_site",
        "            if False and _plain_site",
        f"{_CALLS}test_an_allowed_host_leads_to_no_other[sqlite]",
    ),
    Bug(
        "a body has no end",
        "tools/web/fetching.py",
        "            if len(held) > MAX_BYTES:\n",
        "            if len(held) > 1000 * MAX_BYTES:\n",
        f"{_HOSTILE}test_a_hostile_server_gets_one_plain_refusal[endless body]",
    ),
    Bug(
        "compressed pages are read",
        "tools/web/fetching.py",
        'not in ("identity", ""):',
        'not in ("identity", "", "gzip", "br"):',
        f"{_HOSTILE}test_a_hostile_server_gets_one_plain_refusal[compressed by brotli]",
    ),
    Bug(
        "an IPv4 address in another form is public",
        "policy/web_addresses.py",
        '_PUBLIC_6 = IPv6Network("2000::/3")',
        '_PUBLIC_6 = IPv6Network("::/0")',
        f"{_HOSTILE}test_an_address_that_is_not_public_is_refused_before_anything_is_looked_up"
        "[http://[::ffff:7f00:1]/-page_refused]",
    ),
    Bug(
        "always for one host allows every host",
        "engine/approvals/standing.py",
        "if set(each.values) <= set(known := _texts(allowed.get(each.name)))",
        "if (known := _texts(allowed.get(each.name)))",
        f"{_CALLS}test_always_allows_every_page_of_the_hosts_and_no_other[sqlite]",
    ),
    Bug(
        "always for a host says less than it fixes",
        "agents/approving.py",
        'return f" Always would allow {\', \'.join(each.means for each in derived)}." if derived else ""',
        'return ""',
        f"{_CALLS}test_a_fresh_agent_reads_several_pages_in_one_call_and_then_each_further_call_asks[sqlite]",
    ),
    Bug(
        "people are asked about addresses that are refused anyway",
        "agents/approving.py",
        "or (need and self._refuse_asking(call))",
        "or None",
        f"{_CALLS}test_a_bad_address_is_refused_before_anybody_is_asked_and_changes_nothing[sqlite]",
    ),
    Bug(
        "a host that somebody asked about leads on to others",
        "tools/fetch_page.py",
        "return not isinstance(need, Allow) or await",
        "return await",
        f"{_CALLS}test_a_host_allowed_to_a_person_leads_to_no_other_though_nothing_was_read[sqlite]",
    ),
    Bug(
        "what hosts say is trusted",
        "tools/fetch_page.py",
        "return PUBLIC if all(each.is_own for each in answers) else PUBLIC.distrusted()",
        "return PUBLIC",
        f"{_CALLS}test_a_fresh_agent_reads_several_pages_in_one_call_and_then_each_further_call_asks[sqlite]",
    ),
    Bug(
        "a search engine's redirect is followed with the key",
        "tools/web/search_engines.py",
        "redirects=0)",
        "redirects=5)",
        "tools/test_search_web.py::test_a_rude_engine_gets_one_plain_failure[sqlite-leads on]",
    ),
)
