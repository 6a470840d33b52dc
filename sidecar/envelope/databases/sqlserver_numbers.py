"""The numbers of SQL Server, Azure SQL and their client libraries, and what each means.

Those that a retry may mend are EF Core's transient list and SqlClient's baseline, sorted by whether
the server had undone the work, made us wait, throttles, or is away. From 50000 on they are the
application's own. Later rows stand above the broad ones at the beginning.
"""

from __future__ import annotations

from sidecar.envelope.databases.kinds import (
    broken,
    by_number,
    contended,
    denied,
    final,
    mistaken,
    phrases,
    throttled,
    undone,
    unwell,
)

APPLICATION = 50000
"""The first number that RAISERROR and THROW may use."""

NUMBERS = by_number(
    # the caller's: broad ranges of messages about statements, names, types and values
    (mistaken("syntax, or names that do not fit"),
     """
      101..202 204..219 221..228 231..232 234 239..240 261..296 301..322 324..510 518..534 538 543
      546 549..595 1001..1099 1701..1799 1901..1999 2701..2799 2801..2819 3701..3769 3902 3903 3915
      3916 3930 3931 3998 4101..4116 4118..4183 4185..4199 4401..4599 4701..4799 4901..4999 5074
      7202 7601..7699 8101..8199 8301..8399 9401..9499 10700..10799 11501..11538 13601..13699
      14001..14099 15001..15246
     """),
    (mistaken("the data do not fit"),
     """
      203 206 213 220 235 241..248 257 260 266 295 296 511 512 517 535 537 542 2628 3606..3608
      4145 6301..6399 8114 8115 8134 8144..8146 8152 8169 8178 9801..9899
      """),
    (mistaken("a constraint"),
     "334 515 544 545 547 548 550 1505 2601 2627 3609 4712 13535 13536 33552..33559"),
    (mistaken("its own appetite: it was ended, and would be again"), "40549..40553"),
    (mistaken("raised by the application"), "50000"),
    # lost against others
    (undone("a deadlock: this transaction was the victim and is rolled back"), "1205"),
    (undone("snapshots or in-memory tables found a conflict; the transaction is rolled back"),
     "3960 3961 3966 3947 3948 41301 41302 41305 41325 41339 41839"),
    (undone("changed in between: once more"),
     "539 601 617 669 2021 2816 3941 3950 3957 4117 4184 6292 9515 11539 20041 40106 41383"),
    (contended("waited for a lock, or something else runs that excludes this"),
     """
      1203 1215 1216 1221 1222 1232 1404 1532..1535 1807 3635 3980 8628 9020 10922 14868 19413 19416
      21503 22335 30080 33123 37202 40890 40918 40938 45156 45157 45161 45179 45182 45319 49510
      49977 49983
      """),
    (contended("cancelled"), "3617"),
    # shares
    (throttled("the service asks for ten seconds", wait=10.0), "40501"),
    (throttled("a limit of the service, the database or the pool is reached"),
     "10928 10929 10930 10936 17889 37327 39108 39110 40189 40642 40648 40675 40903 49918..49920"),
    # away
    (unwell("away: reconfiguration, failover, recovery, start or end"),
     """
      596 615 904 921..924 927 941 942 945 952 976 978 979 981..983 988 1413 1421 1438 3429 3953
      4060 4064 4221 5280 5529 6001..6006 7951 14355 14817 14906 16528 16554 16555 17065..17067
      17142..17148 17187..17197 18401 18451 18461 18858 19494 22225 22226 22353 22355 22358 22427
      22430 22491 22493 22498 22754 22758..22760 22984 25003 25738 25740 35216 35218 35250 35256
      35293 39025 39151 39152 40020 40143 40166 40197 40540 40613 40623 40671 41614 41619 41640
      41700 41701 42019 42029 42109 45153 45547 47132 47137 47139 49802
     """),
    (unwell("read only: a secondary after a failover"), "3906 3908"),
    (unwell("out of memory, locks or workers for now"),
     "701 802 1204 3935 8645 8651 8657 8902 9985 17803 30085 41823 41840"),
    (unwell("cannot be reached, or lost"),
     "-1 2 17 20 26 40 53 64 121 233 997 10051..10054 10060 10061 10065 11001..11004"),
    (unwell("the client's clock ran out: the work may have been done"), "-2 20003"),
    (unwell("DB-Library: no connection, or lost"), "20002 20004..20009 20012..20017"),
    # rights
    (denied("not let in"),
     "18450 18452 18456 18458..18460 18462..18489 40532 40607 40615 40852 40914 47073"),
    (denied("not allowed to"),
     """
      229 230 262 297 300 916 2557 2571 3110 5011 6102 10011 15151 15247 15274 15404 15406 21089
      33171
      """),
    # sick
    (broken("full: needs an operator"), "1101 1105 3257 5149 9002 40544"),
    (broken("corruption, or marked suspect"),
     "605 823..825 926 3313 3314 3414 5242 5243 8904..8999"),
    (broken("the pool is paused until somebody resumes it"), "42108"),
    (final("no such database"), "911"),
)  # fmt: skip

# Windows and the client libraries count too, from 1 on: the words tell them from the server's own.
THAT_SAY_LITTLE = {
    0: phrases(
        (broken("a severe error: nobody knows what was done"), "severe error"),
    ),
    121: phrases((mistaken("syntax, or names that do not fit"), "select list")),
    203: phrases((unwell("cannot be reached, or lost"), "connection was successfully established")),
    233: phrases((mistaken("a constraint"), "cannot be null")),
}  # fmt: skip
