"""Log lines: one line each, control characters escaped, so that no text can forge a second line."""

import json
import logging


class LineFormatter(logging.Formatter):
    """`time LEVEL logger message`; the message and any traceback are escaped to one line."""

    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        message = json.dumps(record.getMessage(), ensure_ascii=True)[1:-1].replace('\\"', '"')
        line = f"{self.formatTime(record)} {record.levelname} {record.name} {message}"
        if record.exc_info:
            trace = json.dumps(self.formatException(record.exc_info), ensure_ascii=True)
            line += f" traceback={trace}"
        return line
