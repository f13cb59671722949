"""What schemathesis is told of this API: bodies of uploads are bytes, and a head that HTTP itself does not read is not sent."""

import urllib.parse

import schemathesis
from hypothesis import strategies

schemathesis.openapi.media_type("application/offset+octet-stream", strategies.binary(max_size=4096))

# From 56 KiB on we say 414 ourselves. Of an address of 64 KiB or more nothing here hears: it is answered without a body, or the connection is closed.
LONGEST_QUERY = 58 * 1024


@schemathesis.hook
def filter_query(context, query):
    return len(urllib.parse.urlencode(query or {}, doseq=True)) <= LONGEST_QUERY
