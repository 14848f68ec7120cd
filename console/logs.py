"""Log lines: one line each, control characters escaped, so that no text can forge a second line."""

import json
import logging


class LineFormatter(logging.Formatter):
    """`time LEVEL logger message`, with the message and any traceback as escaped single-line text."""

    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        message = json.dumps(record.getMessage(), ensure_ascii=True)[1:-1].replace('\\"', '"')
        line = f"{self.formatTime(record)} {record.levelname} {record.name} {message}"
        if record.exc_info:
            trace = json.dumps(self.formatException(record.exc_info), ensure_ascii=True)
            line += f" traceback={trace}"
        return line
