"""Times as people write them, in sentences: what is understood, what is refused, and what stays in the prompt.

It is Sunday, 29 November 2026, 12:00 in Berlin, whose zone counts unless a sentence names one.
"""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.errors import Invalid
from antiphon.domain.schedule import At, Cron, Every, Schedule, in_words
from antiphon.domain.written_sentences import time_of, whole_time
from antiphon.domain.written_task import TaskForm, edit_of, new_task, read_task
from antiphon.domain.written_times import schedule_of
from tests.claims import requirement

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 11, 29, 11, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86_400


def when(schedule: Schedule) -> str:
    """`2026-12-04 10:00`, `0 8 * * 1-5` or `every 3600`, with the zone if it is another one."""
    trigger = schedule.trigger
    match trigger:
        case At():
            shown = f"{trigger.time.astimezone(ZoneInfo(schedule.zone)):%Y-%m-%d %H:%M}"
        case Every():
            shown = f"every {trigger.seconds}"
        case Cron():
            shown = trigger.expression
    return shown if schedule.zone == BERLIN else f"{shown} {schedule.zone}"


def read(text: str, zone: str = BERLIN, now: datetime = NOW) -> tuple[str, str]:
    """When the task fires, and its prompt."""
    task = read_task(text)
    return when(schedule_of(task.time, zone, now)), task.prompt


ONCE: dict[str, str] = {
    # days of the week
    "friday at 10": "2026-12-04 10:00",
    "Friday at 10:30": "2026-12-04 10:30",
    "on friday at 10": "2026-12-04 10:00",
    "on friday at 10am": "2026-12-04 10:00",
    "on fri at 10": "2026-12-04 10:00",
    "on Fri. at 10": "2026-12-04 10:00",
    "friday, at 10": "2026-12-04 10:00",
    "friday 10:00": "2026-12-04 10:00",
    "friday 8.30": "2026-12-04 08:30",
    "fri 10am": "2026-12-04 10:00",
    "at 10 on friday": "2026-12-04 10:00",
    "10am friday": "2026-12-04 10:00",
    "next friday at 10": "2026-12-04 10:00",
    "this friday at 10": "2026-12-04 10:00",
    "the coming friday at 10": "2026-12-04 10:00",
    "this coming friday at 10": "2026-12-04 10:00",
    "on friday": "2026-12-04 09:00",
    "friday": "2026-12-04 09:00",
    "next monday": "2026-11-30 09:00",
    "monday at noon": "2026-11-30 12:00",
    "sunday at 10": "2026-12-06 10:00",
    "sunday at 13": "2026-11-29 13:00",
    "this sunday at 13": "2026-11-29 13:00",
    "next sunday at 13": "2026-12-06 13:00",
    "friday morning": "2026-12-04 08:00",
    "on friday afternoon": "2026-12-04 15:00",
    "friday evening at 8": "2026-12-04 20:00",
    "friday at 8 in the evening": "2026-12-04 20:00",
    "friday next week at 10": "2026-12-04 10:00",
    "next week on friday at 10": "2026-12-04 10:00",
    "next week": "2026-11-30 09:00",
    "next month": "2026-12-01 09:00",
    "next year": "2027-01-01 09:00",
    "next week at 14:00": "2026-11-30 14:00",
    # today and tomorrow
    "today at 18:00": "2026-11-29 18:00",
    "at 8 tomorrow morning": "2026-11-30 08:00",
    "at 8 on monday evening": "2026-11-30 20:00",
    "tonight": "2026-11-29 19:00",
    "tonight at 8": "2026-11-29 20:00",
    "tonight at 20:30": "2026-11-29 20:30",
    "at 8 tonight": "2026-11-29 20:00",
    "this evening at 9": "2026-11-29 21:00",
    "this afternoon": "2026-11-29 15:00",
    "tomorrow": "2026-11-30 09:00",
    "tomorrow at 9": "2026-11-30 09:00",
    "tomorrow morning": "2026-11-30 08:00",
    "tomorrow morning at 7": "2026-11-30 07:00",
    "tomorrow evening": "2026-11-30 19:00",
    "tomorrow at 7 in the evening": "2026-11-30 19:00",
    "tomorrow at 12:15pm": "2026-11-30 12:15",
    "tomorrow 9am": "2026-11-30 09:00",
    "at 9 tomorrow": "2026-11-30 09:00",
    "at 9am tomorrow": "2026-11-30 09:00",
    "the day after tomorrow at 9": "2026-12-01 09:00",
    "day after tomorrow": "2026-12-01 09:00",
    # dates
    "on 24 december at 18:00": "2026-12-24 18:00",
    "on 24 December at 6pm": "2026-12-24 18:00",
    "24 Dec at 18:00": "2026-12-24 18:00",
    "24 dec": "2026-12-24 09:00",
    "December 24th at 18:00": "2026-12-24 18:00",
    "december 24, at 18:00": "2026-12-24 18:00",
    "Dec. 24 at 18:00": "2026-12-24 18:00",
    "on the 24th of december at 18:00": "2026-12-24 18:00",
    "on december the 24th at 18:00": "2026-12-24 18:00",
    "24th december 2027 at 18:00": "2027-12-24 18:00",
    "December 24, 2027 at 18:00": "2027-12-24 18:00",
    "at 18:00 on 24 december": "2026-12-24 18:00",
    "24.12. at 18:00": "2026-12-24 18:00",
    "on 24.12. at 18:00": "2026-12-24 18:00",
    "on 24.12 at 18:00": "2026-12-24 18:00",
    "24.12.2027 at 18:00": "2027-12-24 18:00",
    "24.12.27 at 18:00": "2027-12-24 18:00",
    "on 24. December at 18:00": "2026-12-24 18:00",
    "24/12 at 18:00": "2026-12-24 18:00",
    "12/24 at 18:00": "2026-12-24 18:00",
    "on 24/12/2027 at 18:00": "2027-12-24 18:00",
    "on 12/12 at 18:00": "2026-12-12 18:00",
    "2027-01-31": "2027-01-31 09:00",
    "on 2027-01-31 at 8": "2027-01-31 08:00",
    "at 2027-01-31 08:00": "2027-01-31 08:00",
    "2027-01-31 8:15": "2027-01-31 08:15",
    "2027-01-31, 8:15": "2027-01-31 08:15",
    "2027-01-31T08:00:00Z": "2027-01-31 09:00",
    "2027/01/31 at 8": "2027-01-31 08:00",
    "on 1 march at 9": "2027-03-01 09:00",
    "may 5 at 9": "2027-05-05 09:00",
    "on may 5": "2027-05-05 09:00",
    "on 29 february at 9": "2028-02-29 09:00",
    "on 29 november at 9": "2027-11-29 09:00",
    "on 29 november at 13:00": "2026-11-29 13:00",
    "on the 15th at 9": "2026-12-15 09:00",
    "on the 31st at 9": "2026-12-31 09:00",
    "friday, 4 december at 10": "2026-12-04 10:00",
    "on friday the 4th at 10": "2026-12-04 10:00",
    "once, friday at 10": "2026-12-04 10:00",
    # from now
    "in 20 minutes": "2026-11-29 12:20",
    "in 1 hour and 30 minutes": "2026-11-29 13:30",
    "in 1 hour, 30 minutes": "2026-11-29 13:30",
    "in 1h30m": "2026-11-29 13:30",
    "in 1h 30min": "2026-11-29 13:30",
    "in an hour": "2026-11-29 13:00",
    "in half an hour": "2026-11-29 12:30",
    "in a half hour": "2026-11-29 12:30",
    "in an hour and a half": "2026-11-29 13:30",
    "in one and a half hours": "2026-11-29 13:30",
    "in 2 and a half hours": "2026-11-29 14:30",
    "in 1.5 hours": "2026-11-29 13:30",
    "in a quarter of an hour": "2026-11-29 12:15",
    "in two hours": "2026-11-29 14:00",
    "in a day": "2026-11-30 12:00",
    "in a week": "2026-12-06 12:00",
    "in two weeks": "2026-12-13 12:00",
    "in a fortnight": "2026-12-13 12:00",
    "in 3 days at 9": "2026-12-02 09:00",
    "in a week at noon": "2026-12-06 12:00",
    "at 9 in 3 days": "2026-12-02 09:00",
    "two hours from now": "2026-11-29 14:00",
    "3 days from now": "2026-12-02 12:00",
    # times of day
    "at 8": "2026-11-30 08:00",
    "at 18": "2026-11-29 18:00",
    "@ 18:30": "2026-11-29 18:30",
    "at 8am": "2026-11-30 08:00",
    "at 8 am": "2026-11-30 08:00",
    "at 8 a.m.": "2026-11-30 08:00",
    "at 8:30 p.m.": "2026-11-29 20:30",
    "8pm": "2026-11-29 20:00",
    "at 12am": "2026-11-30 00:00",
    "at 12pm": "2026-11-30 12:00",
    "at 8.30": "2026-11-30 08:30",
    "at 20h": "2026-11-29 20:00",
    "at 20h30": "2026-11-29 20:30",
    "at 8 o'clock": "2026-11-30 08:00",
    "at 8 o\u2019clock": "2026-11-30 08:00",
    "at 8 sharp": "2026-11-30 08:00",
    "at exactly 8": "2026-11-30 08:00",
    "at noon": "2026-11-30 12:00",
    "at midday": "2026-11-30 12:00",
    "at midnight": "2026-11-30 00:00",
    "at half past 8": "2026-11-30 08:30",
    "half past 8 pm": "2026-11-29 20:30",
    "at quarter to nine": "2026-11-30 08:45",
    "at a quarter past 9": "2026-11-30 09:15",
    "at ten to 9": "2026-11-30 08:50",
    "at 10 minutes to 9": "2026-11-30 08:50",
    "at twenty past 8": "2026-11-30 08:20",
    "at eight": "2026-11-30 08:00",
    "at eight thirty": "2026-11-30 08:30",
    "at 8 in the morning": "2026-11-30 08:00",
    "at 3 in the afternoon": "2026-11-29 15:00",
    "at 9 in the evening": "2026-11-29 21:00",
    "at 10 at night": "2026-11-29 22:00",
    "in the morning": "2026-11-30 08:00",
    "in the evening": "2026-11-29 19:00",
    # zones
    "at 8 UTC": "2026-11-30 08:00 UTC",
    "at 20 GMT": "2026-11-29 20:00 UTC",
    "at 8 CET": "2026-11-30 08:00 CET",
    "08:00 Europe/London": "2026-11-30 08:00 Europe/London",
    "at 8:00 america/new_york": "2026-11-29 08:00 America/New_York",
    "at 8 Berlin time": "2026-11-30 08:00",
    "friday at 8am New York time": "2026-12-04 08:00 America/New_York",
    "friday at 8 (Asia/Kolkata)": "2026-12-04 08:00 Asia/Kolkata",
    "tomorrow at 9 local time": "2026-11-30 09:00",
}
AGAIN: dict[str, str] = {
    "every 10 minutes": f"every {10 * MINUTE}",
    "every 1h30m": f"every {90 * MINUTE}",
    "every 1 hour and 30 minutes": f"every {90 * MINUTE}",
    "every half hour": f"every {30 * MINUTE}",
    "every half an hour": f"every {30 * MINUTE}",
    "every quarter of an hour": f"every {15 * MINUTE}",
    "every hour": f"every {HOUR}",
    "each hour": f"every {HOUR}",
    "hourly": f"every {HOUR}",
    "once an hour": f"every {HOUR}",
    "every other hour": f"every {2 * HOUR}",
    "every two hours": f"every {2 * HOUR}",
    "every day": f"every {DAY}",
    "each day": f"every {DAY}",
    "daily": f"every {DAY}",
    "once a day": f"every {DAY}",
    "every other day": f"every {2 * DAY}",
    "every second day": f"every {2 * DAY}",
    "every 2nd day": f"every {2 * DAY}",
    "every third day": f"every {3 * DAY}",
    "every week": f"every {7 * DAY}",
    "weekly": f"every {7 * DAY}",
    "every other week": f"every {14 * DAY}",
    "every fortnight": f"every {14 * DAY}",
    "every 2 weeks": f"every {14 * DAY}",
    "every day from now on": f"every {DAY}",
    "daily at 8": "0 8 * * *",
    "at 8 daily": "0 8 * * *",
    "every day at 8": "0 8 * * *",
    "everyday at 8": "0 8 * * *",
    "every single day at 8": "0 8 * * *",
    "each day at 8am": "0 8 * * *",
    "once a day at 8": "0 8 * * *",
    "at 8 every day": "0 8 * * *",
    "at 8 each day": "0 8 * * *",
    "at 8am every weekday": "0 8 * * 1-5",
    "every day at 8 from now on": "0 8 * * *",
    "weekdays at 8": "0 8 * * 1-5",
    "on weekdays at 8": "0 8 * * 1-5",
    "every weekday at 8": "0 8 * * 1-5",
    "every weekday": "0 9 * * 1-5",
    "each weekday at 8:15": "15 8 * * 1-5",
    "every working day at 8": "0 8 * * 1-5",
    "every workday at 8": "0 8 * * 1-5",
    "every week day at 8": "0 8 * * 1-5",
    "business days at 8": "0 8 * * 1-5",
    "weekends": "0 9 * * 0,6",
    "on weekends at 10": "0 10 * * 0,6",
    "every weekend at 10": "0 10 * * 0,6",
    "each monday": "0 9 * * 1",
    "every monday": "0 9 * * 1",
    "each monday at 9": "0 9 * * 1",
    "mondays at 9": "0 9 * * 1",
    "on mondays at 9": "0 9 * * 1",
    "at 9 on mondays": "0 9 * * 1",
    "every mon, wed and fri at noon": "0 12 * * 1,3,5",
    "every monday and thursday at 9": "0 9 * * 1,4",
    "every monday and every thursday at 9": "0 9 * * 1,4",
    "on mondays and thursdays at 9": "0 9 * * 1,4",
    "every monday/thursday at 9": "0 9 * * 1,4",
    "every monday to friday at 9": "0 9 * * 1-5",
    "monday to friday at 9": "0 9 * * 1-5",
    "from monday to friday at 9": "0 9 * * 1-5",
    "mon-fri at 9": "0 9 * * 1-5",
    "Monday through Thursday at 9": "0 9 * * 1-4",
    "weekly on monday at 9": "0 9 * * 1",
    "every week on monday at 9": "0 9 * * 1",
    "every morning": "0 8 * * *",
    "every afternoon": "0 15 * * *",
    "every evening": "0 19 * * *",
    "every night": "0 22 * * *",
    "nightly": "0 22 * * *",
    "each morning at 7": "0 7 * * *",
    "every evening at 8": "0 20 * * *",
    "every night at 11": "0 23 * * *",
    "every night at 2": "0 2 * * *",
    "every day at 8 in the evening": "0 20 * * *",
    "every monday morning": "0 8 * * 1",
    "every weekday morning at 7": "0 7 * * 1-5",
    "every day at 8 and 20": "0 8,20 * * *",
    "every day at 8am and 8pm": "0 8,20 * * *",
    "every day at 8 am and 8 pm": "0 8,20 * * *",
    "every day at 8, 12 and 18": "0 8,12,18 * * *",
    "every day at 8:30, 12:30 and 18:30": "30 8,12,18 * * *",
    "every day at 8 and at 20": "0 8,20 * * *",
    "at 8 and 20 every day": "0 8,20 * * *",
    "daily at noon and midnight": "0 0,12 * * *",
    "every day at 8am and noon": "0 8,12 * * *",
    "weekdays at 9 and 17": "0 9,17 * * 1-5",
    "monthly on the 1st": "0 9 1 * *",
    "monthly": "0 9 1 * *",
    "every month": "0 9 1 * *",
    "every month on the 15th at 9": "0 9 15 * *",
    "every month on the 15 at 9": "0 9 15 * *",
    "every month on the 1st and 15th at 9": "0 9 1,15 * *",
    "on the 1st of every month at 9": "0 9 1 * *",
    "on the 1st of each month at 9": "0 9 1 * *",
    "every 15th at 9": "0 9 15 * *",
    "every 1st of the month at 9": "0 9 1 * *",
    "on the first day of every month at 9": "0 9 1 * *",
    "last day of the month at 18:00": "0 18 L * *",
    "on the last day of every month at 18:00": "0 18 L * *",
    "every month on the last day at 18:00": "0 18 L * *",
    "every first monday of the month at 9": "0 9 * * 1#1",
    "on the first monday of every month at 9": "0 9 * * 1#1",
    "every second monday of the month at 9": "0 9 * * 1#2",
    "every 2nd tuesday of the month at 9": "0 9 * * 2#2",
    "every last friday of the month at 16:00": "0 16 * * 5L",
    "every last friday at 16:00": "0 16 * * 5L",
    "every month on the first monday at 9": "0 9 * * 1#1",
    "every year on 24 december": "0 9 24 12 *",
    "every year on december 24th at 18:00": "0 18 24 12 *",
    "yearly on 24 december at 18:00": "0 18 24 12 *",
    "every 24 december at 18:00": "0 18 24 12 *",
    "every december 24th at 18:00": "0 18 24 12 *",
    "on 24 december every year at 18:00": "0 18 24 12 *",
    "once a month on the 3rd at 9": "0 9 3 * *",
    "once a week on monday at 9": "0 9 * * 1",
    "once a year on 3 march": "0 9 3 3 *",
    "every day at 8 UTC": "0 8 * * * UTC",
    "every weekday at 8 Europe/London": "0 8 * * 1-5 Europe/London",
    "at 8 Berlin time every day": "0 8 * * *",
}
REFUSED: dict[str, str] = {
    # what follows the time is more of it
    "friday at 10 or 11 call": "'friday at 10' is understood, 'or 11",
    "friday at 10 or so call": "or so",
    "at 8ish call": "8ish",
    "friday at 8ish call": "8ish",
    "at 8-ish call": "8-ish",
    "around 8 call": "around 8",
    "at around 8 call": "Write",
    "about noon call": "about noon",
    "friday about noon call": "about noon",
    "every day around 8 call": "around 8",
    "tomorrow around noon call": "around noon",
    "by friday at 10 call": "by friday at 10",
    "before 8 tell me": "before 8",
    "after 10pm tell me": "Write",
    "at 25:00 call": "25:00",
    "at 8:60 call": "8:60",
    "at 24:00 call": "24:00",
    "at 13pm call": "13pm",
    "at 0am call": "0am",
    "tomorrow at 25:00 call": "at 25:00",
    "every day at 25 call": "at 25",
    "friday at 8:5 call": "Write",
    "at 8:30:15 call": "Write",
    "at 8 and a half call": "and a half",
    "at half 8 call": "two ways",
    "at 8 to 10 call": "to 10",
    "at 8-10 call": "8-10",
    "at 8 - 10 call": "- 10",
    "from 8 to 10 call": "from 8",
    "between 9 and 17 every hour look": "between 9",
    "every hour between 9 and 17 look": "between 9' is not",
    "every hour from 9 to 17 look": "from 9",
    "every day at 8 until friday look": "until friday",
    "every day until 24 december look": "until 24",
    "every hour until the deployment is done look": "until the",
    "every day at 8 till sunday look": "till sunday",
    "every day at 8 for 3 days look": "for 3 days",
    "every day at 8 for a week look": "for a week",
    "every day for the next 3 days look": "for the next",
    "for 3 days every morning look": "for 3 days",
    "every day at 8 from monday look": "from monday",
    "every day at 8 from next week look": "from next week",
    "every day at 8 starting tomorrow look": "starting tomorrow",
    "every day at 8, starting on 1 december look": "starting on 1 december",
    "starting tomorrow every day at 8 look": "starting tomorrow",
    "from monday every day at 8 look": "from monday",
    "remind me from monday every day at 8 to look": "from monday",
    "every day at 8 except sundays look": "except",
    "every day at 8 but not on sundays look": "but not",
    "every day at 8 not on sundays look": "not on sundays",
    "every day at 8 only on weekdays look": "only on weekdays",
    "every hour on weekdays look": "on weekdays",
    "every hour during the day look": "during",
    "every day at 8 in december look": "in december",
    "every monday at 8 in summer look": "in summer",
    "every day at 8 in 2027 look": "in 2027",
    "every hour at 15 look": "at 15",
    "every 2 days at 8 look": "Write",
    "every other day at 8 look": "Write",
    "every week at 8 look": "Write",
    "every hour at 8 look": "at 8",
    "tomorrow at 9 every day look": "every day",
    "at 8 every 2 hours look": "every 2 hours",
    "in 10 minutes every hour look": "every hour",
    "friday at 10 saturday at 11 call": "saturday at 11",
    "friday at 10 and saturday at 11 call": "and saturday at 11",
    "friday at 10, saturday at 11 call": "saturday at 11",
    "every monday at 8 and friday at 10 call": "and friday at 10",
    "friday at 10 and again at 12:30 call": "and again at 12:30",
    "friday and saturday at 10 call": "and saturday",
    "monday, wednesday at 10 call": "wednesday",
    "at 8 then at 9 call": "then at 9",
    "at 8, 12 call": "Write",
    "at 8 9:30 call": "9:30",
    "at 8 30 call": "30",
    "friday 10 call": "10",
    "every day 8 call": "8",
    "every day 3 times call": "3",
    "every day twice call": "twice",
    "twice a day call": "Write",
    "biweekly call": "Write",
    "every day after lunch call": "after lunch",
    "every monday before the meeting call": "before the",
    "friday early call": "early",
    "friday late evening call": "late",
    "tomorrow sometime call": "sometime",
    "in 1 hour 30 call": "30",
    "in 2 hours at 9 call": "Write",
    "tomorrow at 8 weekly report": "weekly",
    "at 8 Uhr call": "Uhr",
    # days and times that are no one
    "at 8 and 20 call": "make a task for each",
    "at 8am and 8pm call": "make a task for each",
    "every day at 8 and 20:30 call": "same minute",
    "every day at 8 and 10pm call": "am or pm",
    "every morning at 20:00 call": "not in the morning",
    "tonight at 2 call": "not in the evening",
    "friday night at 2 call": "two days",
    "every second monday at 9 call": "two ways",
    "every third friday call": "two ways",
    "every other monday at 9 call": "No task can be",
    "every other weekday call": "No task can be",
    "every two months call": "No task can be",
    "every 3 months call": "No task can be",
    "every other month call": "No task can be",
    "every year call": "Write",
    "every 24 december 2027 call": "has a year",
    "today call": "Time of day is missing",
    "on 5/6 at 8 call": "5 June or 6 May",
    "5/6 at 8 call": "5 June or 6 May",
    "on 5/6/2027 call": "5 June or 6 May",
    "on 31 february at 8 call": "does not exist",
    "february 30 at 8 call": "does not exist",
    "on 32 december at 8 call": "does not exist",
    "on 24/13 at 8 call": "Write",
    "on 13/13 at 8 call": "does not exist",
    "on 31.4. at 8 call": "does not exist",
    "on 2027-02-29 at 8 call": "does not exist",
    "on the 32nd at 8 call": "does not exist",
    "2027-13-01 08:00 call": "Time is not valid: '2027-13-01 08:00'",
    "monday, 4 december at 10 call": "not a Monday: Fri 2026-12-04",
    # the past
    "today at 9 call": "past: Sun 2026-11-29 09:00",
    "this sunday at 9 call": "past: Sun 2026-11-29 09:00",
    "this morning call": "past: Sun 2026-11-29 08:00",
    "on 24 december 2025 at 18:00 call": "past: Wed 2025-12-24 18:00",
    "2020-01-01 call": "past: Wed 2020-01-01 09:00",
    "on 24.12.2025 call": "past: Wed 2025-12-24",
    # before the time
    "Mon/Wed/Fri at 8 gym": "is understood",
    "in 3 business days at 9 call": "may belong",
    "this week on friday at 10 call": "this week",
    "alternate days at 8 call": "alternate days",
    "at the same time every day call": "at the same time",
    "at christmas at 8 call": "at christmas",
    "on new year's eve at 20:00 call": "on new year's eve",
    "not later than friday at 10 call": "may belong",
    "in a couple of hours call": "in a couple",
    "in 2 to 3 hours call": "in 2 to",
    # more of it
    "every hour on the hour look": "on the hour",
    "every hour at half past look": "at half",
    "tomorrow at lunch call": "at lunch",
    "tomorrow first thing call": "first thing",
    "every day at 8 thru 24 december look": "thru 24 december",
    "every day at 8 up to friday look": "up to friday",
    "every day 8-20 look": "8-20",
    "at 8 thirty call": "thirty",
    "tomorrow at 9/10 call": "9/10",
    "on mon, wed and fri at 8 gym": "wed",
    "tuesday and thursday at 8 gym": "and thursday",
    "every day but sunday at 8 gym": "but sunday",
    "every weekday except friday at 8 gym": "except friday",
    "saturday mornings at 10 gym": "saturday",
    "every 10 to 15 minutes look": "10 to",
    "every quarter look": "No task can be",
    "every day at 9 for the rest of the week look": "for the rest",
    "every day at 9 this week look": "this week",
    "daily at 9 ending on friday look": "ending on friday",
    "daily at 9 without weekends look": "without weekends",
    "daily at 9 skip weekends look": "skip weekends",
    "daily at 9 minus sundays look": "minus sundays",
    "daily at 9, 5 times, look": "5 times",
    "daily at 9 max 5 times look": "max 5 times",
    "friday at 10 at the latest call": "at the latest",
    "friday at approx. 10 call": "approx. 10",
    "friday noon-ish call": "noon-ish",
    "in two weeks on monday call": "on monday",
    "every monday at 9 and every tuesday at 9 look": "and every tuesday at 9",
    "daily at 9 from 1 january to 5 january look": "from 1 january",
    "every 15 minutes between 9:00 and 17:00 look": "between 9:00",
    # misspelt
    "frieday at 10 call": "frieday",
    "on 24 decembre at 18:00 call": "24 decembre",
    "next frieday at 10 call": "next frieday",
    "tomorow at 9 call": "tomorow",
    "evry day at 8 call": "evry",
    "every mondey at 9 call": "Write",
    "at 10 frieday call": "frieday",
    # zones
    "at 8 EST call": "'EST'",
    "at 8 IST call": "'IST'",
    "at 8 CEST call": "'CEST'",
    "at 8 UTC+2 call": "'UTC+2'",
    "at 8 Eastern time call": "'Eastern time'",
    "at 8 Europe/Berln call": "'Europe/Berln'",
    "at 8 UTC Europe/Berlin call": "Write",
    # apart
    "on friday remind me to call Mum at 10": "stand apart",
    "every monday call Mum at 10": "stand apart",
    "every day tell me the weather at 8": "stand apart",
    "at 9 water the plants every monday": "stand apart",
    "remind me at 9 to water the plants every monday": "stand apart",
    "call Mum at 10 and Dad at 11": "two times",
    "summarise the mail of friday every day at 8 and the calls every monday at 9": "two times",
    "report what happened since friday at 10": "may belong",
    "call Mum by friday": "Write",
    # other digits and signs
    "at ８ call": "Write",
    "at ٨ call": "Write",
    "every ３ hours call": "Write",
    "in ٢ hours call": "Write",
    "every ² hours call": "Write",
    "every frıday at 8 call": "Write",
    "at 8\u200b0 call": "Write",
    "at -8 call": "Write",
    "every -2 hours call": "Write",
    "in 0 minutes call": "greater than 0",
    "in 400 days call": "365",
    "in 99999999999 hours call": "Write",
    "every 30 seconds call": "too short",
    "every second call": "too short",
    "soon call": "no time",
    "at soon call": "soon",
}
STAYS: dict[str, tuple[str, str]] = {
    "every day at 8 summarise what happened in the last 24 hours": (
        "0 8 * * *",
        "summarise what happened in the last 24 hours",
    ),
    "tomorrow at 9 remind me of the meeting on friday at 10": (
        "2026-11-30 09:00",
        "remind me of the meeting on friday at 10",
    ),
    "at 8 buy 2 tickets at 5 euro": ("2026-11-30 08:00", "buy 2 tickets at 5 euro"),
    "in 10 minutes tell me a story set in May": ("2026-11-29 12:10", "tell me a story set in May"),
    "every day at 8 in 5 words say what changed": ("0 8 * * *", "in 5 words say what changed"),
    "at 8 for my team write a summary": ("2026-11-30 08:00", "for my team write a summary"),
    "at 8 for 3 people book a table": ("2026-11-30 08:00", "for 3 people book a table"),
    "every day at 8 for the last 24 hours list the errors": ("0 8 * * *", "for the last 24 hours list the errors"),
    "every day at 8 from my inbox pick what matters": ("0 8 * * *", "from my inbox pick what matters"),
    "every day at 8 from the last 3 days pick what matters": ("0 8 * * *", "from the last 3 days pick what matters"),
    "every day at 8 between the two servers compare the disks": (
        "0 8 * * *",
        "between the two servers compare the disks",
    ),
    "every day at 8 at the office tell me what is on": ("0 8 * * *", "at the office tell me what is on"),
    "every day at 8 today's weather": ("0 8 * * *", "today's weather"),
    "at 8 today's news": ("2026-11-30 08:00", "today's news"),
    "at 8 tomorrow\u2019s agenda": ("2026-11-30 08:00", "tomorrow\u2019s agenda"),
    "at 8 next week's plan": ("2026-11-30 08:00", "next week's plan"),
    "every friday at 16:00 this week in numbers": ("0 16 * * 5", "this week in numbers"),
    "every friday at 9 the weekly report": ("0 9 * * 5", "the weekly report"),
    "tomorrow at 9 5-minute summary": ("2026-11-30 09:00", "5-minute summary"),
    "tomorrow at 9 24/7 hotline": ("2026-11-30 09:00", "24/7 hotline"),
    "tomorrow at 9 after the meeting write minutes": ("2026-11-30 09:00", "after the meeting write minutes"),
    "tomorrow at 9 march report": ("2026-11-30 09:00", "march report"),
    "every day at 8 an hour of silence begins": ("0 8 * * *", "an hour of silence begins"),
    "every day five jokes": ("every 86400", "five jokes"),
    "at 8 time to get up": ("2026-11-30 08:00", "time to get up"),
    "every day at 8 skip the intro and say hi": ("0 8 * * *", "skip the intro and say hi"),
    "every day at 8 not only the news but also the weather": (
        "0 8 * * *",
        "not only the news but also the weather",
    ),
    "every day at 8 latest news": ("0 8 * * *", "latest news"),
    "every day at 8 the latest news": ("0 8 * * *", "the latest news"),
    "every day at 9 unless it is a holiday look": ("0 9 * * *", "unless it is a holiday look"),
    "could you please wake me at 6:45 tomorrow?": ("2026-11-30 06:45", "could you please wake me?"),
    "renew the passport 2027-01-31 08:00": ("2027-01-31 08:00", "renew the passport"),
    "call Mum on her birthday, 5 march, at 10": ("2027-03-05 10:00", "call Mum on her birthday"),
    "every monday at 9 weekly report": ("0 9 * * 1", "weekly report"),
    "every weekday at 8 daily standup: say what is due": ("0 8 * * 1-5", "say what is due"),
    "every monday at 9 friday report": ("0 9 * * 1", "friday report"),
    "every day at 8 monday motivation, whatever the day": ("0 8 * * *", "monday motivation, whatever the day"),
    "at 8 sun protection reminder": ("2026-11-30 08:00", "sun protection reminder"),
    "at 8 march to the office": ("2026-11-30 08:00", "march to the office"),
    "at 8 may I ask for the weather": ("2026-11-30 08:00", "may I ask for the weather"),
    "every day at 8 may the force be with me": ("0 8 * * *", "may the force be with me"),
    "at 8 second opinion on the draft": ("2026-11-30 08:00", "second opinion on the draft"),
    "every hour second by second tell me": ("every 3600", "second by second tell me"),
    "every hour 3 jokes": ("every 3600", "3 jokes"),
    "every day at 8:00 20 headlines": ("0 8 * * *", "20 headlines"),
    "every day at 8am 3 jokes": ("0 8 * * *", "3 jokes"),
    "every day at 8:00 30 minutes of yoga": ("0 8 * * *", "30 minutes of yoga"),
    "every day at 8am about 3 topics write a line": ("0 8 * * *", "about 3 topics write a line"),
    "every monday about our budget write a line": ("0 9 * * 1", "about our budget write a line"),
    "at 8 and tell me why": ("2026-11-30 08:00", "and tell me why"),
    "at 8 to be safe check the locks": ("2026-11-30 08:00", "to be safe check the locks"),
    "at 8 by the way remind me of the keys": ("2026-11-30 08:00", "by the way remind me of the keys"),
    "at 8 in Berlin how is the weather": ("2026-11-30 08:00", "in Berlin how is the weather"),
    "at 8 story time for the kids": ("2026-11-30 08:00", "story time for the kids"),
    "at 8 TCP/IP basics": ("2026-11-30 08:00", "TCP/IP basics"),
    "at 8 US/China trade news": ("2026-11-30 08:00", "US/China trade news"),
    "at 8 Asia/Pacific market news": ("2026-11-30 08:00", "Asia/Pacific market news"),
    "at 8 met office warnings": ("2026-11-30 08:00", "met office warnings"),
    "at 8: 3 things I must do": ("2026-11-30 08:00", "3 things I must do"),
    "every 2 hours on the page of the shop look for 5 new offers": (
        "every 7200",
        "on the page of the shop look for 5 new offers",
    ),
    "in 5 minutes in 3 sentences explain rain": ("2026-11-29 12:05", "in 3 sentences explain rain"),
    "every morning in French say hello": ("0 8 * * *", "in French say hello"),
    "tomorrow at 9 the 5th chapter must be read": ("2026-11-30 09:00", "the 5th chapter must be read"),
    "tomorrow at 9 on slide 5 fix the 2 errors": ("2026-11-30 09:00", "on slide 5 fix the 2 errors"),
    "friday at 10 5 euro for the gift": ("2026-12-04 10:00", "5 euro for the gift"),
    "remind me every hour to drink 2 glasses of water": ("every 3600", "remind me to drink 2 glasses of water"),
    "remind me at 9 to call Anna about the meeting on friday": (
        "2026-11-30 09:00",
        "remind me to call Anna about the meeting on friday",
    ),
    "tell me at 8 what is planned for tomorrow": ("2026-11-30 08:00", "tell me what is planned for tomorrow"),
    "tell me at 8 what is planned on friday": ("2026-11-30 08:00", "tell me what is planned on friday"),
    "tell me the joke of the day at 8": ("2026-11-30 08:00", "tell me the joke of the day"),
    "write the daily report every friday at 16:00": ("0 16 * * 5", "write the daily report"),
    "check every server every day at 8": ("0 8 * * *", "check every server"),
    "In 3 sentences, tell me every day at 8 what changed": ("0 8 * * *", "In 3 sentences, tell me what changed"),
    "call Mum on friday": ("2026-12-04 09:00", "call Mum"),
    "remind me to call Mum tomorrow": ("2026-11-30 09:00", "remind me to call Mum"),
    "call Mum tomorrow 9am": ("2026-11-30 09:00", "call Mum"),
    "summarise the mail daily at 8.": ("0 8 * * *", "summarise the mail."),
    "lunch with Augusta at 12:30": ("2026-11-29 12:30", "lunch with Augusta"),
    "gym at 18": ("2026-11-29 18:00", "gym"),
    "Dentist: friday at 10 call": ("2026-12-04 10:00", "call"),
    "at 10 remind me to pay 30 euro until friday": ("2026-11-30 10:00", "remind me to pay 30 euro until friday"),
    "every 30 minutes check whether 24/7 support answered": ("every 1800", "check whether 24/7 support answered"),
    "at 18:30 play track 8 at half volume": ("2026-11-29 18:30", "play track 8 at half volume"),
    "every day at 8 version 2.0 changes": ("0 8 * * *", "version 2.0 changes"),
    "friday at 10 -- 11 people come": ("2026-12-04 10:00", "11 people come"),
    "every day at 8 -- until I say so ask me": ("0 8 * * *", "until I say so ask me"),
    "every weekday at 8 tell me what to do today": ("0 8 * * 1-5", "tell me what to do today"),
    "every evening tell me what I did in the morning": ("0 19 * * *", "tell me what I did in the morning"),
    "every sunday at 18:00 plan the next week": ("0 18 * * 0", "plan the next week"),
    "at 18:00 stop the 8am alarm of tomorrow": ("2026-11-29 18:00", "stop the 8am alarm of tomorrow"),
}

TAILS = (
    "until friday",
    "till 20:00",
    "or 11:45",
    "or later",
    "for 3 days",
    "for a month or two",
    "except on sundays",
    "but not on mondays",
    "starting tomorrow",
    "from next monday",
    "and again at 23:45",
    "and tomorrow at 23:45",
    "in december",
    "during the week",
    "only on fridays at 8:00",
    "at 25:00",
    "ish",
    "at 99",
)
"""What follows a time and says more about it."""
LONG = (
    "every monday and",
    "at 8 and",
    "at 8:00,",
    "in 1 hour and",
    "every 1 hour",
    "1st and",
    "on the 1st and",
    "friday",
    "at",
    "every",
    "24 december",
    "24/12",
    "8",
    "half past",
    "to",
    "in the",
    "and and",
    "at 8 -",
    "a",
    "remind me",
    "Berlin",
    "Europe/Berlin",
    "1:",
    "1.",
    ":",
    "--",
    "every monday at 8 call Mum",
    "at 8 until",
    "(",
    "999999w",
)


@requirement("tasks:1", "channels:3")
@pytest.mark.parametrize(("text", "expected"), (ONCE | AGAIN).items())
def test_a_time_is_understood_wherever_the_prompt_stands(text: str, expected: str) -> None:
    for sentence in (f"{text} call Mum", f"{text}, call Mum", f"{text}: call Mum", f"{text} -- call Mum"):
        assert read(sentence) == (expected, "call Mum"), sentence
    assert read(f"please remind me {text} to call Mum") == (expected, "please remind me to call Mum")
    assert read(f"Mum: {text} call her") == (expected, "call her")
    assert read(f"{text.upper()} call Mum") == (expected, "call Mum") or "'" in text or "/" in text


@requirement("tasks:1", "channels:3")
@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_what_is_not_read_whole_is_refused_with_what_was_understood(text: str, said: str) -> None:
    with pytest.raises(Invalid) as raised:
        read(text)
    assert said in raised.value.message
    assert len(raised.value.message) < 250


@requirement("tasks:1", "channels:3")
@pytest.mark.parametrize(("text", "expected"), STAYS.items())
def test_words_like_times_stay_in_the_prompt(text: str, expected: tuple[str, str]) -> None:
    assert read(text) == expected


@requirement("tasks:1")
@pytest.mark.parametrize("tail", TAILS)
def test_no_time_is_saved_without_what_follows_it(tail: str) -> None:
    for text in ONCE | AGAIN:
        for sentence in (f"{text} {tail} call Mum", f"remind me {text} {tail} to call Mum", f"call Mum {text} {tail}"):
            with pytest.raises(Invalid):
                pytest.fail(f"{sentence}: {read(sentence)}")


@requirement("tasks:1")
def test_a_program_gives_a_time_in_the_same_words() -> None:
    for text, expected in ONCE.items():
        assert when(schedule_of(time_of(at=text), BERLIN, NOW)) == expected
    for text, expected in AGAIN.items():
        assert when(schedule_of(time_of(every=text), BERLIN, NOW)) == expected
        if text.startswith("every "):
            assert when(schedule_of(time_of(every=text.removeprefix("every ")), BERLIN, NOW)) == expected
    assert when(schedule_of(time_of(at="8"), BERLIN, NOW)) == "2026-11-30 08:00"
    assert when(schedule_of(time_of(at="20270131T0800"), BERLIN, NOW)) == "2027-01-31 08:00"
    for wrong in (
        {"at": "every day at 8"},
        {"every": "tomorrow at 8"},
        {"at": "friday at 10 or 11"},
        {"every": "8ish"},
    ):
        with pytest.raises(Invalid):
            schedule_of(time_of(**wrong), BERLIN, NOW)


@requirement("tasks:1")
def test_a_zone_is_named_once() -> None:
    form = TaskForm(text="every day at 8 UTC look", zone="Asia/Kolkata")
    with pytest.raises(Invalid, match="two time zones"):
        new_task(form, BERLIN, NOW)
    with pytest.raises(Invalid, match="two time zones"):
        edit_of(TaskForm(every="day at 8 UTC", zone="Asia/Kolkata"), BERLIN, NOW)
    assert new_task(TaskForm(text="every day at 8 UTC look", zone="UTC"), BERLIN, NOW).schedule.zone == "UTC"


@requirement("tasks:1")
@pytest.mark.parametrize(
    ("day", "text", "expected"),
    [
        ("2026-12-02 12:00", "this friday at 10", "2026-12-04 10:00"),
        ("2026-12-02 12:00", "next friday at 10", "2026-12-04 10:00"),
        ("2026-12-02 12:00", "friday next week at 10", "2026-12-11 10:00"),
        ("2026-12-04 09:00", "friday at 10", "2026-12-04 10:00"),
        ("2026-12-04 11:00", "friday at 10", "2026-12-11 10:00"),
        ("2026-12-04 09:00", "next friday at 10", "2026-12-11 10:00"),
        ("2026-12-04 12:00", "next week", "2026-12-07 09:00"),
        ("2026-12-31 23:00", "next month", "2027-01-01 09:00"),
        ("2026-12-31 23:00", "tomorrow at 9", "2027-01-01 09:00"),
        ("2027-01-31 23:00", "on the 31st at 9", "2027-03-31 09:00"),
        ("2096-03-01 12:00", "on 29 february at 9", None),
        ("2026-12-24 17:00", "24 december at 18:00", "2026-12-24 18:00"),
        ("2026-12-24 18:00", "24 december at 18:00", "2027-12-24 18:00"),
        ("2027-03-27 12:00", "tomorrow at 2:30", "2027-03-28 03:00"),  # clocks go forward
        ("2027-10-30 12:00", "tomorrow at 2:30", "2027-10-31 02:30"),
    ],
)
def test_a_day_is_the_next_one_seen_from_where_its_zone_is(day: str, text: str, expected: str | None) -> None:
    now = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)
    if expected is None:
        with pytest.raises(Invalid, match="ahead"):
            read(f"{text} call", now=now)
    else:
        assert read(f"{text} call", now=now)[0] == expected


def test_today_is_the_day_of_the_zone_that_is_named() -> None:
    late = datetime(2026, 11, 29, 23, 30, tzinfo=UTC)
    assert read("tomorrow at 9 Asia/Tokyo call", now=late)[0] == "2026-12-01 09:00 Asia/Tokyo"
    assert read("tomorrow at 9 America/New_York call", now=late)[0] == "2026-11-30 09:00 America/New_York"


@requirement("tasks:1")
@given(
    st.sampled_from(["*", "1-5", "0,6", "1", "1,3,5", "2-4", "0"]),
    st.sampled_from(["*", "1", "1,15", "31", "L", "24 12", "29 2", "1#1", "5L", "3#4"]),
    st.sets(st.integers(0, 23), min_size=1, max_size=4),
    st.integers(0, 59),
    st.sampled_from([BERLIN, "UTC", "America/New_York", "America/Port-au-Prince"]),
)
def test_a_schedule_in_words_is_read_as_the_same_schedule(
    weekdays: str, days: str, hours: set[int], minute: int, zone: str
) -> None:
    clock = f"{minute} {','.join(map(str, sorted(hours)))}"
    day, _, month = days.partition(" ")
    if days == "*":
        expression = f"{clock} * * {weekdays}"
    elif "#" in days or days == "5L":
        expression = f"{clock} * * {days}"
    else:
        expression = f"{clock} {day} {month or '*'} *"
    schedule = Schedule(Cron(expression), zone)
    written = whole_time(in_words(schedule))
    assert written is not None, in_words(schedule)
    assert schedule_of(written, "Asia/Tokyo", NOW) == schedule


@given(st.integers(1, 365 * 24 * 60), st.integers(1, 3 * 365 * 24 * 60))
def test_an_interval_and_a_single_time_in_words_are_read_as_the_same(minutes: int, ahead: int) -> None:
    for schedule in (
        Schedule(Every(60 * minutes, NOW), "UTC"),
        Schedule(At(NOW + timedelta(minutes=ahead)), "UTC"),
    ):
        written = whole_time(in_words(schedule))
        assert written is not None, in_words(schedule)
        assert schedule_of(written, "UTC", NOW) == schedule


@requirement("tasks:1")
@given(
    st.sampled_from(["on friday", "tomorrow", "on 24 december", "every monday", "daily", "weekdays", "in 3 days"]),
    st.sampled_from(["at 8", "at 8:30", "at 8pm", "at noon", "at half past 8", "at 8 in the evening"]),
    st.sampled_from(["", " UTC", " Asia/Kolkata"]),
)
def test_days_and_times_of_day_come_in_any_order(days: str, clock: str, zone: str) -> None:
    assert read(f"{days} {clock}{zone} call") == read(f"{clock}{zone} {days} call")


WORDS = sorted({word for text in ONCE | AGAIN | REFUSED | STAYS for word in text.split()})


@given(
    st.one_of(
        st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join),
        st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=3)), max_size=10).map("".join),
        st.text(max_size=80),
    ),
    st.datetimes(datetime(1971, 1, 1), datetime(9990, 1, 1)),
)
def test_any_words_are_a_time_or_refused(text: str, now: datetime) -> None:
    moment = now.replace(tzinfo=UTC)
    for form in (TaskForm(text=text), TaskForm(prompt="x", every=text), TaskForm(prompt="x", at=text)):
        try:
            new_task(form, BERLIN, moment)
        except Invalid as error:
            assert len(error.message) < 400


@requirement("tasks:1")
@pytest.mark.parametrize("words", LONG)
def test_ten_thousand_words_are_read_at_once(words: str) -> None:
    text = f"{words} " * (10_000 // len(words.split()))
    started = time.process_time()
    for each in (text, f"{text}call Mum", f"every day at 8 {text}", text.replace(" ", ""), f"call {text}"):
        for form in (TaskForm(text=each), TaskForm(prompt="x", every=each), TaskForm(prompt="x", at=each)):
            try:
                new_task(form, BERLIN, NOW)
            except Invalid as error:
                assert len(error.message) < 400
    assert time.process_time() - started < 5
