"""MySQL, MariaDB and what speaks their protocol: the number is the code, the state comes last.

HY000 covers lock waits, a read-only server and snapshot conflicts alike, 08S01 a packet that is
too large, 42000 a spent quota. Below 2000 and above 3000 the numbers are the server's, from 2000
to 2999 and from 5000 the client library's. What the number does not tell, the state may.
"""

from __future__ import annotations

import re

from sidecar.envelope.databases import odbc, sqlstate
from sidecar.envelope.databases.kinds import (
    UNKNOWN,
    Told,
    argument,
    broken,
    by_class,
    by_number,
    by_word,
    contended,
    dead_handle,
    denied,
    final,
    first_number,
    mistaken,
    number,
    own_limit,
    phrases,
    says,
    state,
    text_of,
    throttled,
    undone,
    unwell,
)
from sidecar.envelope.meaning import Meaning
from sidecar.envelope.raised import Raised

_NUMBERS = by_number(
    (undone("a deadlock: the server rolled the whole transaction back"), "1213 1614 3058 3132"),
    (undone("a branch of a distributed transaction was rolled back"), "1402 1613"),
    (undone("MariaDB's snapshot isolation: the row changed since it was read"), "1020"),
    (undone("the group rolled it back in COMMIT"), "3101"),
    (undone("the schema changed in between: once more"), "1412 1615"),
    (undone("TiDB: a write conflict, or a schema that changed"), "8002 8005 8022 8028 9007"),
    (contended("waited for a lock, or would not: only the statement is undone, roll back first"),
     "1205 1689 3133 3572 9004"),
    (contended("cancelled: by the server's limit of time or by somebody"),
     "1028 1317 1907 1969 3024"),
    (throttled("the quota of one account"), "1203 1226"),
    # the caller's: names, syntax, values, constraints
    (mistaken("a name that exists, or does not"),
     """
      1007 1008 1050 1051 1054 1060 1061 1072 1082 1091 1106 1109 1115 1128 1146 1176 1193 1273 1286
      1298 1304 1305 1308..1311 1319 1324 1327 1359 1360 1396 1449 1630 1649
      """),
    (mistaken("no database selected"), "1046"),
    (mistaken("a constraint"),
     """
      1022 1048 1062 1169 1171 1215..1217 1361..1364 1369 1451 1452 1557 1586 1701 1761 1762 1834
      3780 3819 3940 4025
      """),
    (mistaken("the data do not fit"),
     """
      1058 1074 1118 1136 1138 1139 1162 1172 1230..1233 1241 1242 1246 1261..1265 1267 1270 1271
      1291..1293 1299 1300 1318 1365..1367 1390 1406 1411 1416 1425..1427 1439 1441 1470 1525 1582
      1583 1690 1705 3140..3158 3751..3752 3903 3904 3907 4078
      """),
    (mistaken("syntax, or what the statement may not do"),
     """
      1052 1055..1057 1059 1063..1071 1073 1075 1083..1084 1089 1090 1093 1096 1097 1099..1104
      1107 1108 1110..1113 1116 1117 1120 1121 1137 1140 1148 1149 1163..1168 1170 1173 1175 1177
      1178 1179 1191 1192 1210 1214 1221..1225 1228 1229 1234 1235 1237..1240 1247..1250 1252 1253
      1256..1260 1280..1284 1288 1294 1295 1302 1303 1306 1307 1312..1316 1320..1323 1325 1326
      1328..1339 1347..1358 1382 1391..1395 1407 1413..1415 1421..1424 1435 1437 1442..1448 1453
      1454 1458 1460 1462..1465 1471..1475 1479..1521 1526..1529 1562..1585 1641..1645 1648
      1706 1846 1847 3105..3111 3593 3812..3823 3951..3954 4028..4034 4079 4161 4162
      """),
    (mistaken("out of order in a distributed transaction"), "1397..1400 1440"),
    (mistaken("larger than the server takes"), "1153 1301 2020"),
    # rights
    (denied("not let in, or not allowed to"),
     """
      1044 1045 1095 1130..1133 1142 1143 1211 1227 1251 1275 1370 1410 1419 1524 1698 1820 1862
      1873 2049 2054 2058 2059 2061 3118 3159 3879 3891 3892 3955 4151
     """),
    # the server
    (unwell("too busy to take another"), "1040 1041 1037 1038 1135 1206 1461 1637"),
    (unwell("the server goes down"), "1053 1077..1080 1927"),
    (unwell("a node that is not, or no longer, part of its cluster"), "1047 3032 3100"),
    (unwell("read only: demoted, another server can do it"), "1836"),
    (unwell("the connection broke on the server's side"),
     "1042 1043 1152 1154..1161 1184 1189 1190 1218 1429"),
    (unwell("cannot be reached"), "2001..2005 2009 2012"),
    (unwell("lost in mid-call, or an answer that cannot be read"), "2000 2013 2027 2045 2055 5013"),
    (unwell("TiDB: storage is busy or out of reach"), "9001..9003 9005"),
    (broken("TLS does not come about"), "2026"),
    (broken("full, or broken, on the server's disks: needs an operator"),
     "1021 1023 1024 1026 1030 1034 1035 1114 1194 1195 1712 1815 1877"),
    (broken("the host is blocked until somebody unblocks it"), "1129"),
    (broken("nobody knows how the transaction ended"), "1180 1181 1401"),
    (dead_handle("the connection was dead before the call"), "2006 2048 4031 5014"),
    # the rest
    (final("no such database"), "1049"),
    (final("a read-only transaction or table"), "1036 1207 1792"),
    (final("the session does not know this statement"), "1243"),
    (final("called out of order on one connection"), "2014"),
    (own_limit("out of memory in the client", "local_resource"), "2008"),
)  # fmt: skip

# Numbers that many things share.
_NUMBERS_THAT_SAY_LITTLE = {
    1290: phrases(
        (unwell("read only: demoted, another server can do it"),
         "read-only", "read_only", "read only"),
    ),
    1105: phrases(
        (throttled("Vitess: resource exhausted"), "code = resourceexhausted"),
        (undone("Vitess: aborted"), "code = aborted"),
        (unwell("Vitess: a tablet does not serve"), "code = unavailable", "code = deadlineexceeded",
         "code = cluster_event"),
    ),
}  # fmt: skip

# mysql-connector numbers its own timeouts like the server's, and gives -1 to what has no number.
_CLASSES = by_word(
    (unwell("no connection in time", "connect_timeout"), "ConnectionTimeoutError"),
    (unwell("connected, and no answer in time", "read_timeout"), "ReadTimeoutError"),
    (unwell("no end of sending in time", "timeout"), "WriteTimeoutError"),
    (own_limit("our own pool is busy", "pool_timeout"), "PoolError"),
)  # fmt: skip

_TEXTS = phrases(
    (own_limit("our own pool is busy", "pool_timeout"), "pool exhausted"),
    (dead_handle("the handle was dead before the call", "connection_closed"),
     "connection not available", "is not available", "not connected", "already closed",
     "connection was killed", "isn't valid", "connection is closed", "closed connection",
     "connection has been closed"),
)  # fmt: skip

# `1213 (40001): …` of mysql-connector, `(1213, '…')` of the others.
_HEAD = re.compile(r"\(?(-?\d{1,5})(?:, ?['\"]| \(([0-9A-Z]{5})\): ?|: ?)")


def told(raised: Raised) -> Told | None:
    """What one exception of a driver for MySQL or MariaDB tells, or None."""
    named = by_class(_CLASSES, raised) if raised.family == "mysql" else None
    if named is not None:
        return Told(meaning=named[1], code=_code(_number(raised)), text=_text(raised))
    own, number_, text = _state(raised), _number(raised), _text(raised)
    if number_ is not None and number_ > 0:
        return Told(meaning=_of_number(number_, own, text, raised), code=str(number_), text=text)
    meaning = says(_TEXTS, text)
    if meaning is None and number_ == 0 and not text:
        meaning = dead_handle("the handle was dead before the call", "connection_closed")
    if meaning is not None:
        return Told(meaning=meaning, text=text)
    if own is None:
        return None
    return Told(meaning=sqlstate.meaning_of(own) or UNKNOWN, code=own, text=text)


def _of_number(number_: int, own: str | None, text: str, raised: Raised) -> Meaning:
    meaning = says(_NUMBERS_THAT_SAY_LITTLE.get(number_, ()), text) or _NUMBERS.get(number_)
    if meaning is None and own is not None and own != "HY000":
        meaning = sqlstate.meaning_of(own)
    if meaning is None and any(
        name.endswith((".IntegrityError", ".DataError")) for name in raised.names
    ):
        meaning = mistaken("an unknown number, which the driver puts with constraints or data")
    return meaning or UNKNOWN


def _code(number_: int | None) -> str | None:
    return None if number_ is None or number_ <= 0 else str(number_)


def _number(raised: Raised) -> int | None:
    if odbc.is_odbc(raised):
        return odbc.native(raised) or None
    if isinstance(raised.code, str) and state(raised.code) and number(raised.code) not in _NUMBERS:
        return None
    found = first_number(raised.code, argument(raised, 0), raised.attrs.get("errno"))
    if found is not None:
        return found
    head = _HEAD.match(text_of(argument(raised, 0)) or raised.message)
    return number(head[1]) if head else None


def _state(raised: Raised) -> str | None:
    if odbc.is_odbc(raised):
        return odbc.state_of(raised)
    return raised.sqlstate or (state(raised.code) if isinstance(raised.code, str) else None)


def _text(raised: Raised) -> str:
    if odbc.is_odbc(raised):
        return odbc.plain(raised)
    if isinstance(argument(raised, 0), int):
        text = text_of(argument(raised, 1))
    else:
        text = text_of(argument(raised, 0)) or raised.message
    head = _HEAD.match(text)
    if head is None:
        return text
    return text[head.end() :].rstrip("')\"") if text.startswith("(") else text[head.end() :]
