"""The only door to the network: address policy, bounded bodies, calls at most once."""

from kernel.http.addresses import AddressPolicy as AddressPolicy
from kernel.http.addresses import Target as Target
from kernel.http.addresses import check_url as check_url
from kernel.http.answer import Answer as Answer
from kernel.http.bodies import View as View
from kernel.http.bodies import read_body as read_body
from kernel.http.bodies import view_utf8 as view_utf8
from kernel.http.client import Door as Door
from kernel.http.files import Downloaded as Downloaded
from kernel.http.files import download as download
from kernel.http.headers import retry_after_seconds as retry_after_seconds
from kernel.http.keys import KeyFilter as KeyFilter
from kernel.http.keys import key_to_send as key_to_send
from kernel.http.keys import without_key as without_key
