"""Which GPU is chosen on machines that nobody has at hand: the choice alone, without a driver."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb._core.choosing import Candidate, choose, choose_holder, choose_peer
from cuframes_nb.errors import DeviceError, InvalidArgumentError

GIB = 1 << 30
BY = "CUDA_VISIBLE_DEVICES='0'"


def gpu(ordinal, name="A", *, uuid="", bus="", gib=8, **rest):
    """Return a candidate; its UUID and bus id tell it apart from others by its name."""
    digit = f"{ord(name[0]) % 16:x}"
    uuid = uuid or f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}"
    bus = bus or f"0000:{ord(name[0]):02x}:00.0"
    return Candidate(ordinal, name, uuid, bus, gib * GIB, **rest)


def hidden(name, **rest):
    return gpu(None, name, hidden_by=BY, remedy="add it there", **rest)


A, B, C = gpu(0, "A"), gpu(1, "B"), gpu(2, "C")
LAPTOP = [gpu(0, "Integrated", gib=32, integrated=True), gpu(1, "Discrete", gib=8)]
WITH_EGPU = [*LAPTOP, gpu(2, "Outside", gib=24)]
TWINS = [gpu(0, "E", gib=80), gpu(1, "F", gib=80)]
UNLIKE = [gpu(0, "G", gib=12), gpu(1, "H", gib=24), gpu(2, "G", gib=12, uuid="GPU-0")]
MIG_GPU = gpu(None, "M", hidden_by="MIG, which divides it", remedy="use an instance of it: MIG-1")
MIG = [
    gpu(0, "M MIG 1g", uuid="MIG-11111111-1111", bus=MIG_GPU.pci_bus_id, parent=MIG_GPU.uuid),
    gpu(None, "M MIG 2g", uuid="MIG-22222222-2222", bus=MIG_GPU.pci_bus_id, parent=MIG_GPU.uuid,
        hidden_by=BY, gib=16),
    MIG_GPU,
]  # fmt: skip
SOC = [gpu(0, "Soc", gib=64, integrated=True)]


@pytest.mark.parametrize(
    ("machine", "name", "reason"),
    [
        (LAPTOP, "Discrete", "the discrete GPU with the most memory"),
        (WITH_EGPU, "Outside", "the discrete GPU with the most memory"),
        (TWINS, "E", "the discrete GPU with the most memory, the first of 2 such"),
        (TWINS[::-1], "E", "the discrete GPU with the most memory, the first of 2 such"),
        (UNLIKE, "H", "the discrete GPU with the most memory"),
        ([A], "A", "the only GPU"),
        (SOC, "Soc", "the only GPU"),
        ([*SOC, gpu(1, "Tile", gib=16, integrated=True)], "Soc",
         "an integrated GPU, there is no discrete one, with the most memory"),
        (MIG, "M MIG 1g", "the only GPU"),
        ([A, hidden("B", gib=80)], "A", "the only GPU"),
    ],
)  # fmt: skip
def test_the_default(machine, name, reason):
    candidate, why = choose(machine, None)
    assert (candidate.name, why) == (name, reason)


@pytest.mark.parametrize(
    "wanted",
    [
        1, "1", " 1 ", "cuda:1", "CUDA:1",
        B.uuid, B.uuid.upper(), B.uuid.lower(), "GPU-2222", "gpu-2", "2222", "2" * 8 + "-2222",
        "0000:42:00.0", "00000000:42:00.0", "42:00.0", "42:00", "0000:42:00",
    ],
)  # fmt: skip
def test_every_way_to_name_one(wanted):
    assert choose([A, B, C], wanted) == (B, "asked for")
    if isinstance(wanted, str):
        assert choose([A, B, C], None, default=wanted) == (B, "$CUFRAMES_DEVICE")


def test_an_argument_goes_before_the_environment_and_an_empty_one_counts_not():
    assert choose([A, B], 0, default="1").candidate is A
    assert choose([A, B], None, default="  ").reason.startswith("the discrete GPU")


def test_a_mig_instance_is_named_by_its_own_uuid_or_its_gpus_place():
    for wanted in ("MIG-1111", "mig-11111111-1111", "11111111", 0, MIG_GPU.pci_bus_id):
        assert choose(MIG, wanted).candidate is MIG[0]
    with pytest.raises(DeviceError, match="M MIG 2g, which is hidden from this process by CUDA_VI"):
        choose(MIG, "MIG-2222")
    with pytest.raises(DeviceError, match="by MIG, which divides it: use an instance of it: MIG-1"):
        choose(MIG, MIG_GPU.uuid)
    with pytest.raises(DeviceError, match="there is no GPU GPU-1111"):  # that is no GPU's
        choose(MIG, "GPU-1111")


def test_a_short_number_is_an_ordinal_and_a_long_one_begins_a_uuid():
    digits = gpu(0, "D", uuid="GPU-12345678-1234")
    assert choose([digits], "1234").candidate is digits
    with pytest.raises(DeviceError, match="there is no GPU 123"):
        choose([digits], "123")
    assert choose([digits], "GPU-123").candidate is digits


@pytest.mark.parametrize("wanted", ["2", "GPU-", "GPU-2222", "nonsense", "cuda:2", "45:00.0"])
def test_what_is_on_no_machine(wanted):
    with pytest.raises((DeviceError, InvalidArgumentError), match="GPU") as raised:
        choose([A, gpu(1, "D", uuid="GPU-4444")], wanted)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    "wanted", ["", "  ", "GPU", "GPU-", "GPU-xyz", "cuda", "cuda:", "cuda:-1", -1, True, 1.0, None]
)
def test_what_names_no_gpu_at_all(wanted):
    if wanted is None:
        with pytest.raises(InvalidArgumentError, match=r"\$CUFRAMES_DEVICE='fast' names no GPU"):
            choose([A, B], None, default="fast")
        return
    with pytest.raises(InvalidArgumentError, match="names no GPU: write a UUID or its beginning"):
        choose([A, B], wanted)


def test_a_beginning_that_fits_several_lists_them():
    twins = [gpu(0, "E", uuid="GPU-abc1"), gpu(1, "F", uuid="GPU-abc2"), gpu(2, "G")]
    with pytest.raises(InvalidArgumentError, match="fits several GPUs, say which: 0 E GPU-abc1"):
        choose(twins, "GPU-abc")
    # The one that can be used is meant, where the others cannot.
    assert choose([twins[0], hidden("F", uuid="GPU-abc2")], "GPU-abc").candidate is twins[0]


def test_a_hidden_one_is_told_with_what_hides_it():
    for wanted in ("GPU-2222", "42:00.0"):
        with pytest.raises(DeviceError) as raised:
            choose([A, hidden("B")], wanted)
        assert f"is B, which is hidden from this process by {BY}: add it" in str(raised.value)
    with pytest.raises(
        DeviceError, match="those that this process sees, which alone have ordinals"
    ):
        choose([A, hidden("B")], 1)


def test_when_all_are_hidden_or_none_is_there():
    with pytest.raises(DeviceError, match=r"sees no GPU: GPU-1{8}.* \(A\) is hidden from this"):
        choose([hidden("A")], None)
    with pytest.raises(DeviceError, match="sees no GPU: none is on this machine"):
        choose([], None)
    with pytest.raises(
        DeviceError, match="no GPU: CUDA_VISIBLE_DEVICES='' hides what there is, or"
    ):
        choose([], None, veil="CUDA_VISIBLE_DEVICES=''")


# --- For a subscriber -----------------------------------------------------------------------------


def test_frames_are_read_where_they_are_whatever_its_number():
    for machine in ([A, B], [B, A], [gpu(0, "B")]):
        assert choose_holder(machine, B.uuid).candidate.name == "B"
        assert choose_holder(machine, B.uuid.replace("GPU", "MIG")).candidate.name == "B"
    assert choose_holder([A, B], B.uuid, 1) == (B, "the frames are on B")


@pytest.mark.parametrize(
    ("machine", "wanted", "words"),
    [
        ([A], None, "which is not on this machine (or not given to this container); here: 0 A "),
        ([], None, "which is not on this machine (or not given to this container); here: none"),
        ([A, hidden("B")], None, f"which is hidden from this process by {BY}: add it there"),
        ([hidden("B")], 0, f"which is hidden from this process by {BY}: add it there"),
        ([A, B], 0, "(B, ordinal 1), and device=0 is another one (0 A "),
        ([A, B], "41:00.0", "(B, ordinal 1), and device='41:00.0' is another one (0 A "),
    ],
)
def test_three_errors_are_told_apart(machine, wanted, words):
    with pytest.raises(DeviceError) as raised:
        choose_holder(machine, B.uuid, wanted)
    told = str(raised.value)
    assert told.startswith(f"the frames are on GPU {B.uuid}")
    assert words in told
    others = {"not on this machine", "hidden from this process", "is another one"}
    assert sum(other in told for other in others) == 1


def test_another_way_is_proposed_where_it_could_work():
    hint = "or do it otherwise"

    def told(machine, uuid=B.uuid, wanted=None, **rest):
        with pytest.raises(DeviceError) as raised:
            choose_holder(machine, uuid, wanted, hint=hint, **rest)
        return str(raised.value)

    assert told([A, B], wanted=0).endswith(f"what it needs; {hint}")
    assert told([A, hidden("B")]).endswith(f"add it there; {hint}")
    assert told([A], veil=BY).endswith(f"here: {A}; {hint}")
    assert hint not in told([A])  # on no machine, nothing helps
    assert hint not in told([hidden("B")])  # nobody is there to read
    assert hint not in told(MIG, MIG[1].uuid)  # an instance reaches no other


# --- For a subscriber that takes frames of another GPU, too ---------------------------------------


@pytest.mark.parametrize(
    ("machine", "wanted", "default", "name", "reason"),
    [
        ([A, B], None, "", "B", "the frames are on B"),
        ([A, B], None, "0", "B", "the frames are on B"),  # the environment does not count here
        ([A, B], 1, "", "B", "the frames are on B"),
        ([A, B], 0, "1", "A", f"asked for, to read frames that are on B ({B.uuid})"),
        ([A, hidden("B")], None, "", "A", f"the only GPU, to read frames that are on B ({B.uuid})"),
        ([A, C, hidden("B")], None, "2", "C",
         f"$CUFRAMES_DEVICE, to read frames that are on B ({B.uuid})"),
        ([*LAPTOP, hidden("B")], None, "", "Discrete",
         f"the discrete GPU with the most memory, to read frames that are on B ({B.uuid})"),
        ([A, C, hidden("B")], "cuda:1", "", None, "there is no GPU cuda:1"),
        ([A, hidden("B")], B.uuid, "", None, "is B, which is hidden from this process by"),
        ([hidden("A"), hidden("B")], None, "", None, "this process sees no GPU"),
        ([A, C], None, "", None, "which is not on this machine"),
        ([A, C], 0, "", None, "which is not on this machine"),
        ([], None, "", None, "which is not on this machine"),
    ],
)  # fmt: skip
def test_who_reads_frames_of_another_gpu(machine, wanted, default, name, reason):
    if name is None:
        with pytest.raises(DeviceError, match=re.escape(reason)):
            choose_peer(machine, B.uuid, wanted, default=default)
        return
    candidate, why = choose_peer(machine, B.uuid, wanted, default=default)
    assert (candidate.name, why) == (name, reason)


def test_where_nobody_tells_of_hidden_ones_one_of_them_may_hold_the_frames():
    assert choose_peer([A], B.uuid, veil=BY) == (
        A, f"the only GPU, to read frames that are on {B.uuid}",
    )  # fmt: skip
    with pytest.raises(DeviceError, match="sees no GPU"):
        choose_peer([], B.uuid, veil=BY)


# --- Hidden GPUs change no choice -----------------------------------------------------------------

UUIDS = st.from_regex(r"\A(GPU|MIG)-[0-3]{4}\Z")


@st.composite
def machines(draw):
    """Return visible and hidden GPUs, with UUIDs that may begin alike."""
    uuids = draw(st.lists(UUIDS, unique_by=lambda uuid: uuid[4:], max_size=6))
    seen = draw(st.integers(0, len(uuids)))
    found = [
        gpu(i if i < seen else None, chr(65 + i), uuid=uuid, gib=draw(st.integers(1, 3)),
            integrated=draw(st.booleans()), hidden_by="" if i < seen else BY)
        for i, uuid in enumerate(uuids)
    ]  # fmt: skip
    return found[:seen], found[seen:]


@given(machines(), st.none() | st.integers(0, 6) | st.from_regex(r"\A(GPU-)?[0-3]{1,4}\Z"))
def test_hidden_gpus_change_the_words_of_an_error_and_no_choice(machine, wanted):
    visible, others = machine
    try:
        expected = choose(visible, wanted)
    except InvalidArgumentError:
        with pytest.raises(InvalidArgumentError):
            choose([*others, *visible], wanted)
    except DeviceError:
        with pytest.raises(DeviceError):
            choose([*others, *visible], wanted)
    else:
        assert choose([*others, *visible], wanted) == expected
        assert expected.candidate in visible
