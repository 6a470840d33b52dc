"""The numbers and names of ClickHouse's ErrorCodes.cpp, and what each means."""

from __future__ import annotations

from sidecar.envelope.databases.kinds import (
    broken,
    by_number,
    contended,
    denied,
    final,
    mistaken,
    throttled,
    undone,
    unwell,
)

NUMBERS = by_number(
    # broad ranges of messages about statements, names, types and values
    (mistaken("a statement, a name, a type or a value that does not fit"),
     """
      1..2 6..20 26..30 34..38 41..48 50..73 78..82 85 90 104 109 115..138 140..149 151..155
      169..170 174 176..187 190..191 196 199..200 205..208 211..213 215 219..224 248 253 256..262
      264 277 281..284 288 302 309 318 321 336 349..353 356..359 366 368 370 376..378 386..387
      389..393 395 397 403 406..407 412 427 430 432..441 444 446 456 457 462 466 469 475 481 489 501
      511 523 526..536 548 549 552 557 577 579 584 588 590 592 599 603 620 636
     """),
    (mistaken("more than one query may read or build: it would be again"),
     "158 161..163 165..168 191 229 290 306 307 396"),
    (throttled("a quota, or a limit on what runs or is written at once"), "201 202 252 364"),
    (contended("cancelled, or a limit of time"), "159 160 394 735"),
    (contended("something else runs that excludes this"),
     "216 235..237 335 337 373 384 388 473 517"),
    (undone("lost against another transaction"), "650"),
    (unwell("the network"), "3 32 95 96 100..102 198 203 209 210 279 295 297"),
    (unwell("a replica, a shard or a keeper is not there, or is read only"),
     "225 234 242 244 254 255 265 278 285 286 289 292 369 571 594 667 999"),
    (unwell("out of memory, threads or other means for now"),
     "173 241 298 299 425 439 499 745 1000"),
    (broken("nobody knows what was done"), "319 341 379 659"),
    (broken("the server's own trouble, or its disk"),
     "40 49 74..76 88 204 228 231 243 246 247 1001 1002"),
    (denied("not let in, or not allowed to"), "192..195 291 372 492 497 516"),
    (final("no such database"), "81"),
    (final("reading only"), "164"),
)  # fmt: skip

#: Names that older clients leave where the number is gone.
NAMES = {
    "CANNOT_PARSE_TEXT": 6, "NO_SUCH_COLUMN_IN_TABLE": 16, "BAD_ARGUMENTS": 36,
    "NUMBER_OF_ARGUMENTS_DOESNT_MATCH": 42, "ILLEGAL_TYPE_OF_ARGUMENT": 43, "UNKNOWN_FUNCTION": 46,
    "UNKNOWN_IDENTIFIER": 47, "NOT_IMPLEMENTED": 48, "LOGICAL_ERROR": 49, "TYPE_MISMATCH": 53,
    "TABLE_ALREADY_EXISTS": 57, "UNKNOWN_TABLE": 60, "SYNTAX_ERROR": 62, "CANNOT_PARSE_NUMBER": 72,
    "UNKNOWN_DATABASE": 81, "DATABASE_ALREADY_EXISTS": 82, "TOO_MANY_ROWS": 158,
    "TIMEOUT_EXCEEDED": 159, "TOO_SLOW": 160, "READONLY": 164, "UNKNOWN_USER": 192,
    "WRONG_PASSWORD": 193, "REQUIRED_PASSWORD": 194, "IP_ADDRESS_NOT_ALLOWED": 195,
    "DNS_ERROR": 198,
    "QUOTA_EXCEEDED": 201, "QUOTA_EXPIRED": 201, "TOO_MANY_SIMULTANEOUS_QUERIES": 202,
    "NO_FREE_CONNECTION": 203, "SOCKET_TIMEOUT": 209, "NETWORK_ERROR": 210, "NO_ZOOKEEPER": 225,
    "ABORTED": 236, "MEMORY_LIMIT_EXCEEDED": 241, "TABLE_IS_READ_ONLY": 242,
    "NOT_ENOUGH_SPACE": 243,
    "CORRUPTED_DATA": 246, "TOO_MANY_PARTS": 252, "NO_ACTIVE_REPLICAS": 254,
    "ALL_CONNECTION_TRIES_FAILED": 279, "TOO_FEW_LIVE_REPLICAS": 285, "DATABASE_ACCESS_DENIED": 291,
    "TOO_MANY_BYTES": 307, "UNKNOWN_STATUS_OF_INSERT": 319, "ALL_REPLICAS_ARE_STALE": 369,
    "QUERY_WAS_CANCELLED": 394, "CANNOT_SCHEDULE_TASK": 439, "VIOLATED_CONSTRAINT": 469,
    "DEADLOCK_AVOIDED": 473, "ACCESS_DENIED": 497, "AUTHENTICATION_FAILED": 516,
    "SERIALIZATION_ERROR": 650, "SERVER_OVERLOADED": 745, "KEEPER_EXCEPTION": 999,
}  # fmt: skip
