"""GStreamer's protocol without a socket: bytes, caps, and who may say what when."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb.bridges.gst.caps import Caps, caps_text, layout_of, parse_caps
from cuframes_nb.bridges.gst.codec import Decoder, config_packet, offer_packet, packet
from cuframes_nb.bridges.gst.conversation import Conversation
from cuframes_nb.bridges.gst.messages import (
    MAGIC,
    MAX_PAYLOAD,
    Config,
    End,
    Kind,
    Offer,
    Request,
)
from cuframes_nb.bridges.gst.requests import Account, RequestDecoder
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import CuframesError, RemoteProtocolError, UnsupportedError
from cuframes_nb.formats import PixelFormat
from tests.helpers.gst_server import CAPS, caps, config, have_data, have_mmap_data

HANDLE = bytes(range(64))

# As cudaipcsink 1.26.2 writes it.
SEEN_CONFIG = bytes.fromhex("01 99 00 00 00 c0 10 da c0 39 30 00 00 01 00 00 00") + (
    b"video/x-raw(memory:CUDAMemory), format=(string)NV12, width=(int)640, height=(int)362, "
    b"framerate=(fraction)30/1, pixel-aspect-ratio=(fraction)1/1\0"
)
SEEN_META = struct.pack("<II", 56, 6) + (
    b"MyMeta\0\0MyMeta, foo=(string)bar, n=(guint64)46;\0"
)  # fmt: skip


def decoded(data, fds=()):
    """Feed as a reader does; `fds` says how many descriptors come at which byte."""
    decoder, at, messages = Decoder(), 0, []
    count = dict(fds)
    while at < len(data):
        assert decoder.wanted > 0
        part = data[at : at + decoder.wanted]
        message = decoder.feed(part, count.get(at, 0))
        at += len(part)
        if message is not None:
            messages.append(message)
    return messages


def test_a_config_as_it_was_seen():
    assert len(SEEN_CONFIG) == 9 + 0x99
    (message,) = decoded(SEEN_CONFIG)
    assert message == Config(12345, True, SEEN_CONFIG[17:-1].decode())


def test_a_legacy_frame():
    data = have_data(HANDLE, pts=7, metas=SEEN_META)
    assert decoded(data) == [Offer(7, 18432, 18432, 256, (0, 12288, 0, 0), HANDLE, False, None)]
    assert len(have_data(HANDLE)) == 9 + 108


def test_a_frame_with_its_descriptor():
    data = have_mmap_data(5, pts=8, text=CAPS) + b"\0"
    offer = Offer(8, 18432, 20480, 256, (0, 12288, 0, 0), b"\5\0\0\0", True, CAPS)
    assert decoded(data, {len(data) - 1: 1}.items()) == [offer]
    assert len(have_mmap_data(5)) == 9 + 48


def test_the_byte_with_the_descriptor_is_asked_for_alone():
    decoder = Decoder()
    data = have_mmap_data()
    assert decoder.wanted == 9
    assert decoder.feed(data[:9]) is None
    assert decoder.wanted == len(data) - 9
    assert decoder.feed(data[9:20]) is None
    assert decoder.wanted == len(data) - 20
    assert decoder.feed(data[20:]) is None
    assert decoder.wanted == 1
    assert isinstance(decoder.feed(b"\0", 1), Offer)
    assert decoder.wanted == 9


def test_messages_follow_each_other():
    data = config() + have_mmap_data() + b"\0" + packet(Kind.EOS)
    kinds = [type(m) for m in decoded(data, {len(data) - 10: 1}.items())]
    assert kinds == [Config, Offer, End]


def with_header(kind, length, magic=MAGIC, body=b""):
    return struct.pack("<BII", kind, length, magic) + body


BAD = {
    "magic": (with_header(1, 0, 0xDEADBEEF), "no cudaipcsink"),
    "http": (b"HTTP/1.1 400 Bad Request", "no cudaipcsink"),
    "type 0": (with_header(0, 0), "type 0"),
    "type 77": (with_header(77, 0), "type 77"),
    "a client's type": (with_header(Kind.NEED_DATA, 0), "type 2"),
    "huge": (with_header(Kind.CONFIG, 2**32 - 1), "at most 65536"),
    "one too long": (with_header(Kind.HAVE_DATA, MAX_PAYLOAD + 1), "at most 65536"),
    "empty config": (with_header(Kind.CONFIG, 0), "ends inside a field, at byte 0"),
    "short config": (with_header(Kind.CONFIG, 7, body=bytes(7)), "at byte 7"),
    "no text": (with_header(Kind.CONFIG, 8, body=bytes(8)), "do not end"),
    "no end of text": (packet(Kind.CONFIG, bytes(8) + b"video"), "do not end"),
    "an early end": (packet(Kind.CONFIG, bytes(8) + b"vi\0deo\0"), "do not end"),
    "no utf-8": (packet(Kind.CONFIG, bytes(8) + b"\xff\xfe\0"), "not UTF-8"),
    "short frame": (packet(Kind.HAVE_DATA, bytes(35)), "at byte 35"),
    "no handle": (packet(Kind.HAVE_DATA, bytes(60)), "at byte 60"),
    "no lengths": (packet(Kind.HAVE_DATA, bytes(100)), "at byte 100"),
    "no metas": (packet(Kind.HAVE_DATA, bytes(104)), "at byte 104"),
    "before 1.24": (packet(Kind.HAVE_DATA, bytes(101)), "at byte 101"),
    "long caps": (
        packet(Kind.HAVE_DATA, bytes(100) + b"\xff\xff\xff\xff" + bytes(4)),
        "ends inside a field",
    ),
    "long metas": (packet(Kind.HAVE_DATA, bytes(104) + b"\xff\xff\0\0"), "before 1.24"),
    "more": (packet(Kind.HAVE_DATA, bytes(112)), "112 bytes and ends at 108"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused(name):
    data, says = BAD[name]
    with pytest.raises(RemoteProtocolError, match=says):
        decoded(data)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_frame_has_one_descriptor(count):
    data = have_mmap_data() + b"\0"
    with pytest.raises(RemoteProtocolError, match=f"{count} descriptors instead of 1"):
        decoded(data, {len(data) - 1: count}.items())


@pytest.mark.parametrize("at", [0, 9])
def test_a_descriptor_elsewhere_is_refused(at):
    with pytest.raises(RemoteProtocolError, match="1 descriptors came where none belongs"):
        decoded(config(), {at: 1}.items())


@given(st.binary(max_size=400))
def test_noise_raises_nothing_but_protocol_errors(data):
    with contextlib.suppress(RemoteProtocolError):
        decoded(data)


@given(
    st.sampled_from([Kind.CONFIG, Kind.HAVE_DATA, Kind.HAVE_MMAP_DATA, Kind.EOS]),
    st.binary(max_size=300),
)
def test_noise_in_a_packet_raises_nothing_else_either(kind, payload):
    with contextlib.suppress(RemoteProtocolError):
        decoded(packet(kind, payload))


@given(st.text(max_size=200))
def test_noise_in_caps_is_told_as_an_error_of_ours(text):
    for written in (text, f"video/x-raw, format=(string)NV12, {text}"):
        with contextlib.suppress(CuframesError):
            parse_caps(written)


# --- Caps -----------------------------------------------------------------------------------------


def test_caps_as_they_were_seen():
    found = parse_caps(SEEN_CONFIG[17:-1].decode())
    assert (found.format, found.width, found.height, found.fps) == ("nv12", 640, 362, 30.0)
    assert (found.color.matrix, found.color.range) == ("bt601", "limited")
    assert found.color.assumed


@pytest.mark.parametrize(
    ("colorimetry", "matrix", "range_", "transfer_and_primaries", "assumed"),
    [
        ("bt709", "bt709", "limited", ("bt709", "bt709"), False),
        ("bt601", "bt601", "limited", ("smpte170m", "smpte170m"), False),
        ("bt2020-10", "bt2020", "limited", ("bt2020-10", "bt2020"), False),
        ("bt2100-pq", "bt2020", "limited", ("pq", "bt2020"), False),
        ("bt2100-hlg", "bt2020", "limited", ("hlg", "bt2020"), False),
        ("1:4:0:1", "bt601", "full", (None, "bt709"), False),
        ("2:3:5:1", "bt709", "limited", ("bt709", "bt709"), False),
        ("1:0:0:0", "bt709", "full", (None, None), True),
        ("0:3:0:0", "bt709", "limited", (None, None), True),
        ("2:5:6:5", "bt709", "limited", (None, None), True),
        ("2:1:7:1", "bt709", "limited", ("srgb", "bt709"), True),
        ("smpte240m", "bt709", "limited", (None, None), True),
        ("sRGB", "bt709", "full", ("srgb", "bt709"), True),
        ("99:99:99:99", "bt709", "limited", (None, None), True),
    ],
)
def test_colorimetry(colorimetry, matrix, range_, transfer_and_primaries, assumed):
    for written in (colorimetry, f'"{colorimetry}"'):
        color = parse_caps(caps(1280, 720, more=f", colorimetry=(string){written}")).color
        assert (color.matrix, color.range) == (matrix, range_)
        assert (color.transfer, color.primaries) == transfer_and_primaries
        assert color.assumed is assumed


def test_what_is_rgb_already_stays_so():
    color = parse_caps(caps(format_="RGBA", more=", colorimetry=(string)sRGB")).color
    assert (color.matrix, color.range, color.assumed) == ("rgb", "full", False)
    assert parse_caps(caps(format_="RGB")).color.matrix == "rgb"


def test_a_quoted_comma_separates_nothing():
    found = parse_caps(
        caps(32, 16, more=r', mastering-display-info=(string)"1:2, width=(int)7, \"3\""')
    )
    assert (found.width, found.height) == (32, 16)


@pytest.mark.parametrize(("rate", "fps"), [("60000/1001", 59.94), ("0/1", 0), ("30/0", 0)])
def test_rates(rate, fps):
    assert parse_caps(caps(rate=rate)).fps == pytest.approx(fps, abs=0.001)


@pytest.mark.parametrize("format_", ["I420", "Y444_16LE", "", "x" * 500])
def test_other_formats_are_refused_with_what_to_do(format_):
    with pytest.raises(UnsupportedError, match="put 'cudaconvert ! video/x-raw") as caught:
        parse_caps(caps(format_=format_))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "text",
    [
        "audio/x-raw, rate=(int)48000",
        "",
        caps(0, 48),
        caps(64, 32769),
        caps("9" * 5000, 48),
        caps("-4", 48),
        caps(more=", x=(string)" + "y" * 9000),
        "video/x-raw, format=(string)NV12, width=(int)64",
    ],
)
def test_what_is_no_video_is_refused(text):
    with pytest.raises(RemoteProtocolError):
        parse_caps(text)


# --- Geometry -------------------------------------------------------------------------------------


def offer(**changes):
    fields = {
        "pts_ns": 0, "size": 18432, "max_size": 20480, "pitch": 256, "offsets": (0, 12288, 0, 0),
        "token": HANDLE, "is_mmap": False, "caps": None,
    }  # fmt: skip
    return Offer(**{**fields, **changes})


def test_a_layout_is_what_the_packet_says():
    layout = layout_of(parse_caps(CAPS), offer())
    assert [(p.offset, p.pitch, p.shape) for p in layout.planes] == [
        (0, 256, (48, 64)),
        (12288, 256, (24, 32, 2)),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"pitch": 0},
        {"pitch": 63},
        {"pitch": 2**32 - 1},
        {"offsets": (0, 0, 0, 0)},
        {"offsets": (0, 12287 - 256, 0, 0)},
        {"offsets": (0, 2**32 - 1, 0, 0)},
        {"offsets": (2**31, 2**31 + 12288, 0, 0)},
        {"size": 100},
        {"size": 20481},
        {"size": 0},
        {"max_size": 0},
    ],
)
def test_a_frame_outside_of_its_memory_is_refused(changes):
    with pytest.raises(RemoteProtocolError):
        layout_of(parse_caps(CAPS), offer(**changes))


@given(
    size=st.integers(0, 2**32 - 1),
    max_size=st.integers(0, 2**32 - 1),
    pitch=st.integers(0, 2**32 - 1) | st.integers(64, 300),
    offsets=st.tuples(*[st.integers(0, 2**32 - 1) | st.integers(0, 20000)] * 4),
)
def test_every_layout_lies_in_its_memory(size, max_size, pitch, offsets):
    it = offer(size=size, max_size=max_size, pitch=pitch, offsets=offsets)
    try:
        layout = layout_of(parse_caps(CAPS), it)
    except RemoteProtocolError:
        return
    end = 0
    for plane in layout.planes:
        assert end <= plane.offset
        end = plane.end
    assert end <= size <= max_size


# --- Who may say what when ------------------------------------------------------------------------


def test_a_conversation():
    talk = Conversation()
    assert talk.ask() == b""
    talk.incoming(Config(1, False, CAPS))
    assert talk.ask() == packet(Kind.NEED_DATA)
    assert talk.ask() == b""
    talk.incoming(offer())
    assert talk.confirm() == packet(Kind.READ_DONE)
    assert talk.release(HANDLE) == packet(Kind.RELEASE_DATA, HANDLE)
    assert talk.ask() == packet(Kind.NEED_DATA)
    talk.incoming(End())
    assert talk.ask() == b""
    assert talk.leave() == packet(Kind.FIN)


def test_the_mode_says_how_frames_are_released():
    talk = Conversation()
    talk.incoming(Config(1, True, CAPS))
    assert talk.is_mmap
    assert talk.release(b"\5\0\0\0") == packet(Kind.RELEASE_MMAP_DATA, b"\5\0\0\0")


def test_a_sink_may_end_before_it_began():
    talk = Conversation()
    talk.incoming(End())
    assert talk.ask() == b""


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([offer()], "has not said"),
        ([Config(1, False, CAPS)] * 2, "config"),
        ([Config(1, False, CAPS), offer()], "was not asked"),
        ([Config(1, False, CAPS), "ask", offer(is_mmap=True)], "of mode legacy"),
        ([Config(1, True, CAPS), "ask", offer()], "of mode mmap"),
        ([Config(1, False, CAPS), "ask", offer(), offer()], "was not asked"),
        ([Config(1, False, CAPS), End(), End()], "has ended"),
        ([Config(1, False, CAPS), "ask", End(), offer()], "has ended"),
    ],
)
def test_what_is_said_out_of_turn_is_refused(messages, says):
    talk = Conversation()
    with pytest.raises(RemoteProtocolError, match=says):
        for message in messages:
            talk.ask() if message == "ask" else talk.incoming(message)


# --- The other side -------------------------------------------------------------------------------


def test_what_we_say_is_what_a_sink_says():
    assert config_packet(Config(12345, True, SEEN_CONFIG[17:-1].decode())) == SEEN_CONFIG
    offer = Offer(8, 18432, 20480, 256, (0, 12288, 0, 0), b"\5\0\0\0", True, CAPS)
    assert offer_packet(offer) == have_mmap_data(5, pts=8, text=CAPS)
    legacy = Offer(7, 18432, 18432, 256, (0, 12288, 0, 0), HANDLE, False, None)
    assert offer_packet(legacy) == have_data(HANDLE, pts=7)


FORMATS = st.sampled_from(["nv12", "p010", "rgb24", "rgba32"])
YUV = st.builds(
    ColorSpec,
    st.sampled_from(["bt601", "bt709", "bt2020"]),
    st.sampled_from(["limited", "full"]),
    st.sampled_from([None, "bt709", "bt470bg", "smpte170m", "bt2020", "smpte432"]),
    st.sampled_from([None, "linear", "bt709", "srgb", "bt2020-10", "pq", "hlg", "smpte170m"]),
)


@given(FORMATS, st.integers(1, 32768), st.integers(1, 32768), YUV, st.integers(0, 240))
def test_caps_that_are_written_are_read(format_, width, height, color, fps):
    format_ = PixelFormat.parse(format_)
    if not format_.is_yuv:
        color = ColorSpec("rgb", color.range, color.primaries, color.transfer)
    said = Caps(format_, width, height, float(fps), color)
    read = parse_caps(caps_text(said))
    assert read == said
    assert read.color.assumed is False


def test_colours_that_are_assumed_are_not_told():
    text = caps_text(Caps(PixelFormat.NV12, 64, 48, 0.0, ColorSpec.assume(48)))
    assert "colorimetry" not in text
    assert "framerate=(fraction)0/1" in text


@pytest.mark.parametrize(("fps", "text"), [(30000 / 1001, "30000/1001"), (12.5, "25/2")])
def test_rates_are_fractions(fps, text):
    caps = Caps(PixelFormat.NV12, 64, 48, fps, ColorSpec())
    assert f"framerate=(fraction){text}," in caps_text(caps)


def test_gray_is_no_format_of_gstreamer_s_gpu_elements():
    with pytest.raises(UnsupportedError, match="gray8"):
        caps_text(Caps(PixelFormat.GRAY8, 64, 48, 0.0, ColorSpec()))


def requests(data, cuts=()):
    decoder, found, at = RequestDecoder(), [], 0
    for cut in [*sorted(cuts), len(data)]:
        found += decoder.feed(data[at:cut])
        at = cut
    return found


SAID = (
    packet(Kind.NEED_DATA)
    + packet(Kind.READ_DONE)
    + packet(Kind.RELEASE_MMAP_DATA, b"\7\0\0\0")
    + packet(Kind.FIN)
)


@given(st.sets(st.integers(0, len(SAID))))
def test_requests_are_the_same_however_they_are_cut(cuts):
    assert requests(SAID, cuts) == [
        Request(Kind.NEED_DATA),
        Request(Kind.READ_DONE),
        Request(Kind.RELEASE_MMAP_DATA, b"\7\0\0\0"),
        Request(Kind.FIN),
    ]


@given(st.binary(max_size=200))
def test_a_request_decoder_raises_nothing_else(data):
    with contextlib.suppress(RemoteProtocolError):
        requests(data)


def test_an_account():
    account = Account()
    assert account.incoming(Request(Kind.NEED_DATA)) is None
    assert account.asks
    account.offer(b"1", "one")
    assert (account.asks, len(account)) == (False, 1)
    account.incoming(Request(Kind.READ_DONE))
    account.incoming(Request(Kind.NEED_DATA))
    account.offer(b"2", "two")
    assert account.incoming(Request(Kind.RELEASE_MMAP_DATA, b"1")) == "one"
    assert account.give_up() == ["two"]
    assert len(account) == 0


@pytest.mark.parametrize("kind", [Kind.READ_DONE, Kind.RELEASE_MMAP_DATA])
def test_an_account_of_what_was_not_offered(kind):
    with pytest.raises(RemoteProtocolError, match=kind.name):
        Account().incoming(Request(kind, b"1234"))


def test_whoever_has_not_heard_of_the_end_may_ask():
    account = Account()
    account.end()
    account.incoming(Request(Kind.NEED_DATA))
    assert not account.asks
    account.incoming(Request(Kind.FIN))
    assert account.left
