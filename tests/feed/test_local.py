"""Wakes within one process."""

from antiphon.domain.ids import SessionRow
from antiphon.feed.local import LocalNotifier

ONE, OTHER = SessionRow(1), SessionRow(2)


def test_who_no_longer_listens_is_not_woken_and_others_are() -> None:
    notifier, woken = LocalNotifier(), list[str]()
    leave = notifier.subscribe(ONE, lambda: woken.append("first"))
    leave_second = notifier.subscribe(ONE, lambda: woken.append("second"))
    notifier.subscribe(OTHER, lambda: woken.append("other"))
    leave()
    leave()
    notifier.publish([ONE])
    assert woken == ["second"]
    leave_second()
    assert notifier.subscribed == [OTHER]
