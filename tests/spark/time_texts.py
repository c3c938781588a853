"""Makes texts of dates and timestamps at random: good ones, odd ones, and ones with a fault."""

from __future__ import annotations

from random import Random

# Not CET, EST5EDT and their like: the years before 1970 depend on the release of the time zone database.
ZONES = [
    "", "", "Z", " Z", "+01:00", "-8:30", "+7:5", "+0530", "+05", "+5", "-18:00", "+18:01", "+05:30:15", "+053015", "z",
    "UTC", "GMT", "UT", "UTC+2", "GMT+02:00", "UT-0330", "GMT0", "UTC0", "PST", "EST", "ROC", "Nowhere",
    "Europe/Paris", " America/New_York", "America/St_Johns", "europe/paris", "Asia/Kolkata", "Etc/GMT+5", "US/Pacific",
    "[Europe/Paris]", "Z[UTC]", "é", ".5", "Africa/Casablanca", "Australia/Lord_Howe", "Pacific/Apia", "posix/UTC",
]  # fmt: skip
DAYS = [
    "2024-02-29", "2023-02-29", "1582-10-10", "0000-01-01", "0001-1-1", "9999-12-31", "1970-1-1", "2038-01-19",
    "2024-3-31", "2024-10-27", "1883-11-18", "12345-06-07", "123456-07-08", "294247-01-10", "-290308-12-21",
    "+2020-05-06", "-0044-03-15", "1234567-01-01", "5881580-07-11", "-5877641-06-23", "2024", "2024-7", "202",
    "2024-13-01", "2024-04-31", "2024-00-01", "1900-02-29", "2000-02-29", "20240102", "2024-", "2024-01-",
    "24-01-02", "00002024-01-01", "2024/01/02", "1890-01-01",
]  # fmt: skip
OTHERS = [
    "", " ", "T", "+", "-", "0", "12", "-7", "+12", "99999999", "-10000000", "2147483648", "-200000000", "٣٤", "1_0",
    "now", "2024-02-29GMTT10:20:30", "GMT", "2024GMT", "2024-02-29T10:20:30GMT+01:00", "2024-02-29 10:20GMT",
    "-719162", "-0719529000", "12.5", "1e3", "0x10",
]  # fmt: skip


def random_time_text(random: Random) -> str:
    """What could stand where a date or a timestamp is expected."""
    choice = random.random()
    if choice < 0.08:
        return random.choice(OTHERS)
    text = random.choice(DAYS) if random.random() < 0.4 else _day(random)
    if random.random() < 0.75:
        text += random.choice(["T", " ", "T", " ", "t", "  ", ""]) + random_clock(random)
    if choice < 0.2:
        text = (
            random.choice([" ", "\t", "\x7f", "\x00", "\xa0"]) * random.choice([0, 1])
            + text
            + random.choice(["", " ", "\n"])
        )
    if choice < 0.3 and text:
        at = random.randrange(len(text))
        text = text[:at] + random.choice(["", "x", "-", ":", "5", "é", " "]) + text[at + random.choice([0, 1]) :]
    return text


def random_clock(random: Random) -> str:
    digits = random.choice(["02", "", "02", "02"])
    parts = [format(random.randrange(limit), digits) for limit in (25, 61, 61)][: random.choice([1, 2, 3, 3, 3, 3])]
    text = ":".join(parts)
    if len(parts) == 3 and random.random() < 0.5:
        text += "." + "".join(random.choices("0123456789", k=random.randrange(11)))
    return text + (random.choice(ZONES) if len(parts) == 3 or random.random() < 0.1 else "")


def _day(random: Random) -> str:
    year = random.choice([random.randrange(1890, 2110), random.randrange(10_000), random.randrange(300_000)])
    sign = random.choice(["", "", "", "", "-", "+"])
    return f"{sign}{year:04d}-{random.randrange(1, 13):02d}-{random.randrange(1, 31):02d}"
