"""What schemathesis is told of this API: bodies of uploads are bytes."""

import schemathesis
from hypothesis import strategies

schemathesis.openapi.media_type("application/offset+octet-stream", strategies.binary(max_size=4096))
