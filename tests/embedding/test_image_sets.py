"""The paper's data sets as they are published, in small imitations, and rpim benchmark from their images."""

from __future__ import annotations

import csv
import json
import os
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file
from scipy.io import savemat

from rpim import FeatureSet, InputError
from rpim.benchmark.entries import Split, known_classes
from rpim.benchmark.protocol import Case, make_case, split_features
from rpim.benchmark.raw_images import check_statistics, protocol_items
from rpim.benchmark.results import PAPER_SETS
from rpim.data.formats.arrays import load_pickle
from rpim.data.labels import unlabelled_rows
from rpim.embedding.image_sets import READERS, gcds_hundred, read_image_set
from rpim.embedding.weights import library

COLOURS = np.random.RandomState(0).randint(0, 256, (200, 3), dtype=np.uint8)


def image(path: Path, label: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), tuple(COLOURS[label].tolist())).save(path)


def rows(items) -> list[tuple[str, int, str]]:
    return list(zip(items.ids.tolist(), items.labels.tolist(), items.split.tolist(), strict=True))


# The imitations


def python2(held: dict[str, object]) -> bytes:
    """A dict as cPickle of Python 2 wrote it (protocol 2), in which CIFAR is published: text is bytes, arrays old."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def whole(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def one(value: object) -> bytes:
        if isinstance(value, str):
            return text(value.encode())
        if isinstance(value, int):
            return whole(value)
        if isinstance(value, list):
            return b"](" + b"".join(map(one, value)) + b"e"
        assert isinstance(value, np.ndarray)
        kind = b"cnumpy\ndtype\n" + text(value.dtype.str[1:].encode()) + whole(0) + whole(1) + b"\x87R"
        kind += b"(" + whole(3) + text(value.dtype.str[:1].encode()) + b"NNN" + whole(-1) * 2 + whole(0) + b"tb"
        shape = b"(" + b"".join(map(whole, value.shape)) + b"t"
        empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + whole(0) + b"\x85" + text(b"b") + b"\x87R"
        return empty + b"(" + whole(1) + shape + kind + b"\x89" + text(value.tobytes()) + b"tb"

    return b"\x80\x02}(" + b"".join(one(key) + one(value) for key, value in held.items()) + b"u."


def pixels(labels: list[int]) -> np.ndarray:
    """Images of one colour each, as CIFAR has them: (n, 3072), the red of all pixels first."""
    return np.repeat(COLOURS[labels], 32 * 32, axis=1)


def make_cifar10(folder: Path, per_batch: int = 2) -> Path:
    folder.mkdir(parents=True)
    labels = [label for label in range(10) for _ in range(per_batch)]
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        held = {"batch_label": "a batch", "labels": labels, "data": pixels(labels), "filenames": ["a.png"]}
        (folder / name).write_bytes(python2(held))
    return folder


def make_cifar100(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, labels in (("train", [7, 99, 0]), ("test", [5])):
        held = {"fine_labels": labels, "coarse_labels": [1] * len(labels), "data": pixels(labels)}
        (folder / name).write_bytes(python2(held))
    return folder


def make_imagenet(folder: Path) -> Path:
    """1,000 folders, of which every third has images; the 100 of GCD have them all."""
    full = {*gcds_hundred(), *range(0, 1000, 3)}
    for place in range(1000):
        for part in ("train", "val"):
            (folder / part / f"n{place * 7 + 1440764:08d}").mkdir(parents=True)
    for place in full:
        name = f"n{place * 7 + 1440764:08d}"
        (folder / "train" / name / f"{name}_9.JPEG").touch()
        (folder / "val" / name / "ILSVRC2012_val_00000001.JPEG").touch()
    return folder


def make_cub(folder: Path, n_classes: int = 3, per_class: int = 2) -> Path:
    """Each class has `per_class` images for training and one for testing, which is listed first."""
    images, classes, parts = [], [], []
    for label in range(n_classes):
        for k in range(per_class + 1):
            name = f"{label + 1:03d}.Bird/Bird_{k}.jpg"
            image(folder / "images" / name, label)
            number = len(images) + 1
            images.append(f"{number} {name}")
            classes.append(f"{number} {label + 1}")
            parts.append(f"{number} {int(k > 0)}")
    for name, lines in (("images", images), ("image_class_labels", classes), ("train_test_split", parts)):
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


def annotate(path: Path, files: list[tuple[str, int]]) -> None:
    fields = [("bbox_x1", "O"), ("bbox_y1", "O"), ("bbox_x2", "O"), ("bbox_y2", "O"), ("class", "O"), ("fname", "O")]
    found = np.empty((1, len(files)), dtype=fields)
    for k, (name, number) in enumerate(files):
        found[0, k] = (1, 1, 3, 3, number, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"annotations": found})


def make_cars(folder: Path) -> Path:
    for part, name_of_list, files in (
        ("train", "cars_train_annos", [("00001.jpg", 14), ("00002.jpg", 3), ("00003.jpg", 196)]),
        ("test", "cars_test_annos_withlabels", [("00001.jpg", 3)]),  # a single row, which MATLAB makes no list
    ):
        annotate(folder / "devkit" / f"{name_of_list}.mat", files)
        for name, number in files:
            image(folder / f"cars_{part}" / name, number)
    return folder


def make_herbarium(folder: Path) -> Path:
    for part, per_class in (("small-train", 2), ("small-validation", 1)):
        for label, name in enumerate(("0", "1", "10", "2")):
            for k in range(per_class):
                image(folder / part / name / f"{k}.jpg", label)
            (folder / part / name / "notes.txt").write_text("not an image")
    return folder


def make_aircraft(folder: Path) -> Path:
    data = folder / "data"
    listed = {
        "trainval": [("1025794", "707-320"), ("0000002", "An-12"), ("0000003", "ATR-42"), ("0000004", "MD-80 II")],
        "test": [("0000005", "An-12"), ("0000006", "MD-80 II")],
    }
    for part, images in listed.items():
        for number, _ in images:
            image(data / "images" / f"{number}.jpg", 1)
        (data / f"images_variant_{part}.txt").write_text("".join(f"{number} {name}\n" for number, name in images))
    return folder


MAKERS = {
    "cifar10": make_cifar10,
    "cifar100": make_cifar100,
    "imagenet100": make_imagenet,
    "cub": make_cub,
    "cars": make_cars,
    "herbarium19": make_herbarium,
    "aircraft": make_aircraft,
}


# Reading


def test_cifar10(tmp_path):
    items = read_image_set("cifar10", make_cifar10(tmp_path / "cifar-10-batches-py"))
    assert len(items) == 6 * 20
    assert rows(items)[:3] == [("train/000000", 0, "train"), ("train/000001", 0, "train"), ("train/000002", 1, "train")]
    assert rows(items)[99:101] == [("train/000099", 9, "train"), ("test/000000", 0, "test")]
    assert items.content[3].shape == (32, 32, 3)
    assert (items.content[3] == COLOURS[1]).all()
    assert items.paths is None


def test_pixels_of_cifar_are_where_they_belong(tmp_path):
    """Red 1 in the last place of the first line, green 2 in the first of the last line, blue 3 in the middle."""
    folder = make_cifar100(tmp_path / "cifar-100-python")
    data = np.zeros((1, 3072), dtype=np.uint8)
    data[0, 31], data[0, 1024 + 31 * 32], data[0, 2048 + 5 * 32 + 7] = 1, 2, 3
    (folder / "train").write_bytes(python2({"fine_labels": [4], "data": data}))
    picture = read_image_set("cifar100", folder).content[0]
    assert np.argwhere(picture).tolist() == [[0, 31, 0], [5, 7, 2], [31, 0, 1]]
    assert (picture[0, 31, 0], picture[5, 7, 2], picture[31, 0, 1]) == (1, 3, 2)


def test_the_imitation_of_old_pickles_is_a_true_one():
    held = {"labels": [3, 4], "data": pixels([3, 4]), "wide": np.array([[1, -2]], ">i2")}
    found = pickle.loads(python2(held), encoding="latin1")  # ours, so that nothing can happen
    assert found["labels"] == [3, 4]
    np.testing.assert_array_equal(found["data"], pixels([3, 4]))
    np.testing.assert_array_equal(found["wide"], held["wide"])


def test_cifar100_has_its_fine_classes(tmp_path):
    items = read_image_set("cifar100", make_cifar100(tmp_path / "cifar-100-python"))
    assert rows(items) == [
        ("train/000000", 7, "train"),
        ("train/000001", 99, "train"),
        ("train/000002", 0, "train"),
        ("test/000000", 5, "test"),
    ]


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_newer_pythons(tmp_path, protocol):
    folder = make_cifar100(tmp_path / "c")
    held = {"fine_labels": [3, 1], "data": pixels([3, 1])}
    (folder / "test").write_bytes(pickle.dumps(held, protocol))
    assert rows(read_image_set("cifar100", folder))[3:] == [("test/000000", 3, "test"), ("test/000001", 1, "test")]


def test_imagenet100_is_chosen_among_the_thousand(tmp_path):
    root = make_imagenet(tmp_path / "imagenet")
    items = read_image_set("imagenet100", root)
    assert len(items) == 200
    name = f"n{14 * 7 + 1440764:08d}"  # GCD's second class is the fifteenth of ImageNet
    assert rows(items)[1] == (f"train/{name}/{name}_9.JPEG", 1, "train")
    assert rows(items)[101] == (f"val/{name}/ILSVRC2012_val_00000001.JPEG", 1, "test")
    other = read_image_set("imagenet100", root, [6, 3])
    assert [(Path(name).parts[1], label) for name, label, part in rows(other) if part == "train"] == [
        (f"n{6 * 7 + 1440764:08d}", 0),
        (f"n{3 * 7 + 1440764:08d}", 1),
    ]


def test_gcds_hundred_classes():
    """The first and the last that GCD's code prints."""
    drawn = gcds_hundred()
    assert (drawn[:5], drawn[-3:]) == ([1, 14, 27, 31, 45], [987, 993, 996])
    assert len(set(drawn)) == 100


def test_cub_keeps_the_order_and_division_of_its_lists(tmp_path):
    root = make_cub(tmp_path / "CUB_200_2011", n_classes=2)
    items = read_image_set("cub", root)
    assert rows(items) == [
        ("images/001.Bird/Bird_0.jpg", 0, "test"),
        ("images/001.Bird/Bird_1.jpg", 0, "train"),
        ("images/001.Bird/Bird_2.jpg", 0, "train"),
        ("images/002.Bird/Bird_0.jpg", 1, "test"),
        ("images/002.Bird/Bird_1.jpg", 1, "train"),
        ("images/002.Bird/Bird_2.jpg", 1, "train"),
    ]
    assert items.content[3] == root / "images/002.Bird/Bird_0.jpg"


@pytest.mark.parametrize("beside", [False, True])
def test_cars_count_classes_from_one(tmp_path, beside):
    root = make_cars(tmp_path / "stanford_cars")
    if beside:  # as torchvision has it
        shutil.move(root / "devkit" / "cars_test_annos_withlabels.mat", root)
    assert rows(read_image_set("cars", root)) == [
        ("cars_train/00001.jpg", 13, "train"),
        ("cars_train/00002.jpg", 2, "train"),
        ("cars_train/00003.jpg", 195, "train"),
        ("cars_test/00001.jpg", 2, "test"),
    ]


def test_herbariums_classes_are_sorted_as_text(tmp_path):
    found = rows(read_image_set("herbarium19", make_herbarium(tmp_path / "herbarium_19")))
    assert found[4:8] == [
        ("small-train/10/0.jpg", 2, "train"),
        ("small-train/10/1.jpg", 2, "train"),
        ("small-train/2/0.jpg", 3, "train"),
        ("small-train/2/1.jpg", 3, "train"),
    ]
    assert found[8:] == [(f"small-validation/{name}/0.jpg", k, "test") for k, name in enumerate(("0", "1", "10", "2"))]


def test_variants_of_aircraft_are_sorted_as_text(tmp_path):
    found = rows(read_image_set("aircraft", make_aircraft(tmp_path / "fgvc-aircraft-2013b")))
    assert found == [
        ("data/images/1025794.jpg", 0, "train"),
        ("data/images/0000002.jpg", 2, "train"),  # ATR-42 before An-12
        ("data/images/0000003.jpg", 1, "train"),
        ("data/images/0000004.jpg", 3, "train"),
        ("data/images/0000005.jpg", 2, "test"),
        ("data/images/0000006.jpg", 3, "test"),
    ]


@pytest.mark.parametrize("name", READERS)
def test_the_parent_folder_will_do(tmp_path, name):
    root = MAKERS[name](tmp_path / "data sets" / "as unpacked")
    (tmp_path / "data sets" / "something else").mkdir()
    given, found = read_image_set(name, root), read_image_set(name, root.parent)
    assert rows(given) == rows(found)
    assert given.source == found.source == root
    assert len(set(given.split)) == 2


# What is wrong


@pytest.mark.parametrize("name", READERS)
def test_an_empty_folder_is_told_what_is_expected(tmp_path, name):
    with pytest.raises(InputError, match=r"is not the folder of .*, because .* is not in it: give the one wi") as said:
        read_image_set(name, tmp_path)
    assert len(str(said.value).splitlines()) == 1
    with pytest.raises(InputError, match="nowhere is not there or not a folder: give the folder of"):
        read_image_set(name, tmp_path / "nowhere")


def test_two_in_one_folder(tmp_path):
    make_cub(tmp_path / "a")
    make_cub(tmp_path / "b")
    with pytest.raises(InputError, match="holds CUB-200-2011 more than once"):
        read_image_set("cub", tmp_path)


@pytest.mark.parametrize(
    ("name", "gone"),
    [("cub", "images/002.Bird/Bird_1.jpg"), ("cars", "cars_test/00001.jpg"), ("aircraft", "data/images/0000003.jpg")],
)
def test_images_that_are_listed_but_not_there(tmp_path, name, gone):
    root = MAKERS[name](tmp_path / "set")
    n = len(read_image_set(name, root))
    (root / gone).unlink()
    with pytest.raises(InputError, match=rf"lacks 1 of its {n} images \({gone}\): unpack the data set again"):
        read_image_set(name, root)


def without(*names):
    return lambda root: [(root / name).unlink() for name in names]


def empty(name):
    return lambda root: [file.unlink() for file in (root / name).iterdir()]


def write(name, content):
    return lambda root: (root / name).write_bytes(content)


def change(name, old, new):
    return lambda root: (root / name).write_text((root / name).read_text().replace(old, new, 1))


def pickled(name, **held):
    return write(name, python2(held))


DAMAGE = {
    "not a pickle": ("cifar10", write("data_batch_3", b"<html>"), "data_batch_3 cannot be read as a file of CIFAR-10"),
    "cut off": ("cifar100", write("train", python2({"fine_labels": [1]})[:-3]), "train cannot be read"),
    "a list": ("cifar100", write("train", pickle.dumps([1])), "holds no rows of 3,072 bytes under 'data'"),
    "other width": ("cifar100", pickled("train", fine_labels=[1], data=np.zeros((1, 48), np.uint8)), "holds no rows"),
    "floats": ("cifar100", pickled("train", fine_labels=[1], data=np.zeros((1, 3072), "<f4")), "not whole"),
    "wide numbers": ("cifar100", pickled("train", fine_labels=[1], data=np.zeros((1, 3072), "<i2")), "not of bytes"),
    "no classes": ("cifar10", pickled("test_batch", data=pixels([1])), "no list of class numbers under 'labels'"),
    "negative": ("cifar10", pickled("test_batch", labels=[-1], data=pixels([1])), "no list of class numbers"),
    "one class more": ("cifar10", pickled("test_batch", labels=[1, 2], data=pixels([1])), "1 images but 2 classes"),
    "999 classes": ("imagenet100", lambda root: shutil.rmtree(root / "train/n01447757"), "has 999 folders of classes"),
    "flat val": (
        "imagenet100",
        lambda root: [shutil.rmtree(root / "val"), (root / "val").mkdir()],
        r"val has no images of 100 of 100 classes \(n\d+",
    ),
    "no images": ("herbarium19", empty("small-train/10"), r"small-train has no images of 1 of 4 classes \(10\)"),
    "own class": (
        "herbarium19",
        lambda root: (root / "small-validation/11").mkdir(),
        r"small-validation has classes that small-train has not \(11\)",
    ),
    "other images": ("cub", write("image_class_labels.txt", b"1 1\n77 2\n"), r"not all of the same images \(2, 3"),
    "no class": ("cub", write("images.txt", b"1\n"), r"line 1, '1', is not an image and something about it"),
    "twice": ("cub", write("images.txt", b"1 a.jpg\n1 b.jpg\n"), "line 2, '1 b.jpg', names an image again"),
    "class 0": ("cub", change("image_class_labels.txt", "1 1\n", "1 0\n"), "class 0, but they are numbered from 1 on"),
    "not a division": ("cub", change("train_test_split.txt", "1 0\n", "1 maybe\n"), "train_test_split.txt cannot be"),
    "no test classes": ("cars", without("devkit/cars_test_annos_withlabels.mat"), "has no devkit/cars_test_annos_with"),
    "not MATLAB": ("cars", write("devkit/cars_train_annos.mat", b"no"), "is no list of annotated images"),
    "other MATLAB": (
        "cars",
        lambda root: savemat(root / "devkit/cars_train_annos.mat", {"x": 1}),
        r"is no list of annotated images \('annotations'\)",
    ),
    "own variant": (
        "aircraft",
        write("data/images_variant_test.txt", b"0000005 Il-76\n"),
        r"test images have variants of their own \(Il-76\)",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_data_sets(tmp_path, case):
    name, damage, message = DAMAGE[case]
    root = MAKERS[name](tmp_path / "set")
    damage(root)
    with pytest.raises(InputError, match=message) as said:
        read_image_set(name, root)
    assert len(str(said.value).splitlines()) == 1


def test_classes_of_imagenet_that_there_are_not(tmp_path):
    root = make_imagenet(tmp_path / "imagenet")
    with pytest.raises(InputError, match="has 1000: give different numbers from 0 to 999"):
        read_image_set("imagenet100", root, [3, 1000])
    with pytest.raises(InputError, match="has a class twice"):
        read_image_set("imagenet100", root, [3, 3])


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_a_hostile_batch_is_refused_and_nothing_runs(tmp_path):
    root, trace = make_cifar100(tmp_path / "set"), tmp_path / "trace"
    for call in (Hostile(os.system, f"touch {trace}"), Hostile(open, str(trace), "w"), Hostile(np.save, trace, [1])):
        (root / "train").write_bytes(pickle.dumps({"data": call}, 2))
        with pytest.raises(InputError, match=r"train holds [\w.]+, and of a pickle nothing but lists"):
            read_image_set("cifar100", root)
    assert not trace.exists()


def test_an_array_that_lies_about_its_shape(tmp_path):
    path = tmp_path / "lie.pkl"
    path.write_bytes(python2({"data": np.zeros(6, np.uint8)}).replace(b"(J\x06\0\0\0t", b"(J\xff\0\0\0t", 1))
    with pytest.raises(InputError, match=r"an array of 6 bytes for a shape of \(255,\)"):
        load_pickle(path, "a test", "mend it")
    path.write_bytes(b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00K\x00tR.")
    assert load_pickle(path, "a test", "mend it").values.size == 0  # an array without content has none


# Known classes, and the sizes of the paper


def test_lists_are_found_under_the_names_that_people_give_them(tmp_path):
    lists = tmp_path / "lists.json"
    lists.write_text(
        json.dumps(
            {
                "stanford_cars": {"known": [1]},
                "fgvc_aircraft": {"known": [2]},
                "herbarium19": {"known": [3]},
                "imagenet100": {"known": [0], "unknown": [1], "imagenet1k_classes": [7, 5]},
            }
        )
    )
    assert known_classes("cars", lists) == Split((1,))
    assert known_classes("aircraft", lists) == Split((2,))
    assert known_classes("herbarium19", lists) == Split((3,))
    assert known_classes("imagenet100", lists) == Split((0,), (1,), (7, 5))
    assert known_classes("cifar10", lists) == Split((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    with pytest.raises(InputError, match="has no list for the set 'cub'"):
        known_classes("cub", lists)
    lists.write_text('{"known": [0], "imagenet1k_classes": ["n01440764"]}')
    with pytest.raises(InputError, match="text among imagenet1k_classes"):
        known_classes("imagenet100", lists)


def test_the_folder_of_gcds_lists(tmp_path):
    held = {"known_classes": [4], "unknown_classes": {"Hard": [5]}}
    (tmp_path / "scars_osr_splits.pkl").write_bytes(pickle.dumps(held))
    assert known_classes("cars", tmp_path) == Split((4,), (5,))
    assert len(known_classes("cifar100", tmp_path).known) == 80
    with pytest.raises(InputError, match=r"cub_osr_splits\.pkl is not there"):
        known_classes("cub", tmp_path)


def case_of(sizes: list[int], known: range | list[int]) -> Case:
    """A problem of classes with so many training rows each."""
    truth = np.repeat(np.arange(len(sizes)), sizes)
    return make_case(
        split_features(FeatureSet.from_arrays(np.ones((len(truth), 1)), labels=truth)), 0, Split(tuple(known))
    )


def test_sizes_of_the_paper():
    """CUB has 194 classes of 30 training images and 6 of 29: 5,994, of which 1,494 to 1,500 are labelled."""
    cub = [29] * 6 + [30] * 194
    assert check_statistics("cub", case_of(cub, range(100)))  # 6 x 14 + 94 x 15 = 1,494
    assert check_statistics("cub", case_of(cub, range(100, 200)))  # 1,500
    assert check_statistics("cifar10", case_of([5_000] * 10, range(5)))  # 12,500 and 37,500
    assert check_statistics("cifar100", case_of([500] * 100, range(80)))  # 20,000 and 30,000


def test_a_division_that_is_not_the_papers():
    cub = [29] * 6 + [30] * 194
    with pytest.raises(InputError, match=r"with 99 of 200 classes known, 1,485 rows would be labelled and 4,509 not"):
        check_statistics("cub", case_of(cub, range(101, 200)))
    # As many classes known as in the paper, but all of them large: 100 x 23 labelled rows.
    with pytest.raises(InputError, match=r"2,300 rows would be labelled and 3,700 not, .* about 1,500 rows and 4,500"):
        check_statistics("cub", case_of([46] * 100 + [14] * 100, range(100)))


def test_a_part_of_a_data_set_is_not_the_papers():
    assert not check_statistics("cub", case_of([28] * 200, range(100)))
    assert not check_statistics("aircraft", case_of([30] * 200, range(3)))


@pytest.mark.parametrize("name", [name for name in READERS if name in PAPER_SETS])
def test_the_real_data_sets_have_the_papers_sizes(name):
    """RPIM_IMAGE_SETS is a folder with one of each name, and GCD's lists in ssb_splits."""
    place = os.environ.get("RPIM_IMAGE_SETS")
    if place is None or not Path(place, name).exists():
        pytest.skip(f"RPIM_IMAGE_SETS names no folder with {name}")
    lists = Path(place, "ssb_splits")
    split = known_classes(name, lists if lists.exists() else None)
    items = read_image_set(name, Path(place, name), split.imagenet_classes)
    features = FeatureSet.from_arrays(np.ones((len(items), 1)), labels=items.labels, split=items.split)
    assert check_statistics(name, make_case(split_features(features), 0, split))


# rpim benchmark --data


@pytest.fixture
def embedded(monkeypatch):
    """A stand-in for the encoders: the mean colour of each image, projected; gives the list of what was embedded."""
    calls: list[tuple[str, str]] = []

    def embed(items, encoder, output, *, verbose=False, overwrite=False):
        calls.append((output.name, encoder))
        if encoder == "interrupted":
            raise KeyboardInterrupt
        pictures = [np.asarray(Image.open(one)) if isinstance(one, Path) else one for one in items.content]
        colours = np.stack([picture.reshape(-1, 3).mean(axis=0) for picture in pictures]) / 255 - 0.5
        X = np.tanh(4 * colours @ np.random.RandomState(1).randn(3, 16))
        features = FeatureSet.from_arrays(
            X, labels=items.labels, ids=items.ids, split=items.split, metadata={"encoder": encoder}
        )
        features.write(output, overwrite=overwrite)

    monkeypatch.setattr("rpim.embedding.open_encoder.open_encoder", lambda kind, name, weights: name)
    monkeypatch.setattr("rpim.embedding.embed.embed", embed)
    return calls


FAST = ("--methods", "kmeans,gcd", "--seeds", "0", "--jobs", "1")


def results() -> list[dict[str, str]]:
    with open("out/results.csv", newline="") as file:
        return list(csv.DictReader(file))


def gcds_list() -> Path:
    """GCD's folder of lists, with one for the small CUB of four classes."""
    folder = Path("ssb_splits")
    folder.mkdir()
    held = {"known_classes": [3, 1], "unknown_classes": {"Easy": [0], "Hard": [2]}}
    (folder / "cub_osr_splits.pkl").write_bytes(pickle.dumps(held))
    return folder


@pytest.mark.slow
def test_a_benchmark_from_images_and_its_second_call(benchmark, embedded):
    make_cifar10(Path("cifar-10-batches-py"))
    make_cub(Path("birds/CUB_200_2011"), n_classes=4, per_class=6)
    arguments = (
        "--data",
        "cifar10=cifar-10-batches-py",
        "--data",
        "cub=birds",
        "--encoder",
        "colours",
        "--splits",
        gcds_list(),
        *FAST,
        "-o",
        "out",
    )
    code, out, err = benchmark(*arguments)
    assert (code, err) == (0, "")
    assert embedded == [("cifar10.parquet", "colours"), ("cub.parquet", "colours")]
    table = {(row["estimator"], row["set"]): row for row in results()}
    assert len(table) == 4
    # Of 10 training rows of each of 5 known classes half are labelled; 20 test rows. CUB: 6 of each of 2, 4 test rows.
    numbers = ("rows", "labelled", "evaluated", "test_rows", "n_classes")
    assert [table["gcd", "cifar10"][name] for name in numbers] == ["100", "25", "75", "20", "10"]
    assert [table["gcd", "cub"][name] for name in numbers] == ["24", "6", "18", "4", "4"]
    assert float(table["gcd", "cifar10"]["all"]) > 0.9  # a colour is a class
    assert float(table["gcd", "cifar10"]["test_all"]) > 0.9
    assert "rows called train alone; 20 called test were predicted afterwards" in out
    cells = Path("out/cells.jsonl").read_bytes()
    assert benchmark(*arguments)[0] == 0
    assert len(embedded) == 2
    assert Path("out/cells.jsonl").read_bytes() == cells
    # The page shows a command that can be given again.
    typed = "--data cifar10=cifar-10-batches-py --data cub=birds --encoder colours"
    assert typed in Path("out/index.html").read_text()


@pytest.mark.slow
def test_the_classes_of_imagenet_are_those_of_the_list(benchmark, embedded):
    root = make_imagenet(Path("imagenet"))
    for part in ("train", "val"):
        for place in (0, 3, 6, 9):
            for k in range(4):
                image(root / part / f"n{place * 7 + 1440764:08d}" / f"{k}.png", place)
        for file in (root / part).glob("*/*.JPEG"):
            file.unlink()
    lists = {"imagenet100": {"known": [0, 1], "unknown": [2, 3], "imagenet1k_classes": [9, 6, 3, 0]}}
    Path("lists.json").write_text(json.dumps(lists))
    arguments = ("--data", "imagenet100=imagenet", "--encoder", "colours", "--splits", "lists.json", *FAST, "-o", "out")
    assert benchmark(*arguments)[0] == 0
    features = FeatureSet.read("out/features/imagenet100.parquet")
    assert features.ids[0] == f"train/n{9 * 7 + 1440764:08d}/0.png"
    lists["imagenet100"]["imagenet1k_classes"] = [0, 3, 6, 9]
    Path("lists.json").write_text(json.dumps(lists))
    code, _, err = benchmark(*arguments)
    assert (code, len(embedded)) == (2, 1)
    assert "imagenet100.parquet was made with other imagenet_classes" in err


@pytest.mark.slow
def test_a_benchmark_by_a_real_encoder(benchmark):
    """The smallest ViT of timm's, with weights by chance."""
    make_cifar10(Path("cifar"))
    save_file(library("timm").create_model("test_vit").state_dict(), "vit.safetensors")
    data = ("--data", "cifar10=cifar", *FAST, "-o", "out")
    code, _, err = benchmark(*data, "--encoder", "test_vitt", "--weights", "vit.safetensors")
    assert (code, err.count("\n")) == (2, 1)
    assert "did you mean test_vit" in err
    assert not Path("out").exists()
    code, out, _ = benchmark(*data, "--encoder", "test_vit", "--weights", "vit.safetensors")
    assert code == 0
    assert "cifar10" in out
    assert FeatureSet.read("out/features/cifar10.parquet").metadata["embedding"]["encoder"] == "test_vit"


@pytest.mark.slow
def test_an_interruption_while_embedding(benchmark, embedded):
    make_cifar10(Path("cifar"))
    data = ("--data", "cifar10=cifar", *FAST, "-o", "out")
    code, out, err = benchmark(*data, "--encoder", "interrupted")
    assert (code, out) == (130, "")
    assert err == "rpim: interrupted while embedding images; the same command resumes.\n"
    # Nothing was finished, so that another encoder may do it.
    assert benchmark(*data, "--encoder", "colours")[0] == 0
    assert [encoder for _, encoder in embedded] == ["interrupted", "colours"]


@pytest.mark.slow
def test_features_of_another_encoder_or_other_images_are_not_taken(benchmark, embedded):
    make_cifar10(Path("cifar"))
    Path("a.pth").write_bytes(b"first")
    data = ("--data", "cifar10=cifar", *FAST, "-o", "out")
    assert benchmark(*data, "--encoder", "colours", "--weights", "a.pth")[0] == 0
    before = Path("out/features/cifar10.parquet").read_bytes()
    Path("b.pth").write_bytes(b"first")  # the same weights in another place
    assert benchmark(*data, "--encoder", "colours", "--weights", "b.pth")[0] == 0
    Path("b.pth").write_bytes(b"second")
    shutil.copytree("cifar", "copy")
    for changed, arguments in (
        ("weights", (*data, "--encoder", "colours", "--weights", "b.pth")),
        ("weights", (*data, "--encoder", "colours")),
        ("encoder and weights", (*data, "--encoder", "greys")),
        ("encoder", (*data, "--encoder", "dino-vitb16", "--weights", "a.pth")),
        ("folder", ("--data", "cifar10=copy", *data[2:], "--encoder", "colours", "--weights", "a.pth")),
    ):
        code, _, err = benchmark(*arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert f"cifar10.parquet was made with other {changed} (cifar10.json says of what)" in err
    Path("out/features/cifar10.json").unlink()
    assert "cifar10.parquet is there, but not cifar10.json" in benchmark(*data, "--encoder", "colours")[2]
    assert Path("out/features/cifar10.parquet").read_bytes() == before
    assert len(embedded) == 1


def cub(*arguments: str) -> tuple[str, ...]:
    make_cub(Path("cub"), n_classes=4)
    return ("--data", "cub=cub", "--encoder", "colours", *arguments)


def cifar(*arguments: str) -> tuple[str, ...]:
    make_cifar10(Path("cifar"))
    return ("--data", "cifar10=cifar", *arguments)


def listed(known: list[int]) -> str:
    Path("list.json").write_text(json.dumps({"known": known}))
    return "list.json"


def as_features(name: str) -> str:
    np.savez(name, features=np.eye(8), labels=np.arange(8) // 2)
    return name


BAD_INPUT = {
    "name": (lambda: ("--data", "cubs=x", "--encoder", "e"), "the data set 'cubs' is unknown: did you mean cub?"),
    "no folder": (lambda: ("--data", "cub", "--encoder", "e"), "--data is 'cub': give NAME=FOLDER"),
    "not there": (lambda: ("--data", "cifar10=x", "--encoder", "e"), "x is not there or not a folder"),
    "twice": (lambda: cifar("--data", "cifar10=x", "--encoder", "e"), "--data gives cifar10 twice"),
    "no encoder": (cifar, "--data is given without --encoder: name one; the paper's is dino-vitb16."),
    "encoder alone": (lambda: (as_features("a.npz"), "--encoder", "e"), "--encoder is given without --data"),
    "weights alone": (lambda: (as_features("a.npz"), "--weights", "e"), "--weights is given without --data"),
    "no weights": (lambda: cifar("--encoder", "e", "--weights", "w.pth"), "w.pth is not there"),
    "no list": (
        cub,
        "The set 'cub' needs the list of its known classes: give --splits cub_osr_splits.pkl or its "
        "folder, data/ssb_splits of the GCD repository",
    ),
    "list of another": (
        lambda: cub("--splits", listed([1, 77])),
        "The set 'cub': the split list has classes that the set has not (77)",
    ),
    "same name": (lambda: (as_features("cifar10.npz"), *cifar("--encoder", "e")), "both called 'cifar10'"),
    "protocol": (lambda: cifar("--encoder", "e", "--protocol", "batches"), "--data is given with the protocol batches"),
    "method": (lambda: cifar("--encoder", "e", "--methods", "pmi"), "The method 'pmi' is unknown"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_before_anything_is_embedded(
    case, benchmark_refused, embedded, monkeypatch, tmp_path
):
    make, message = BAD_INPUT[case]
    monkeypatch.chdir(tmp_path)
    benchmark_refused(message, *make())
    assert embedded == []


def test_a_real_data_set_with_a_wrong_list_is_refused_before_it_is_embedded(
    benchmark_refused, embedded, monkeypatch, tmp_path
):
    """200 classes of 30 training images, as in CUB, but with a list that knows only two of them."""
    monkeypatch.chdir(tmp_path)
    root = make_cub(Path("cub"), n_classes=2, per_class=1)
    names = [f"{number} {number}.jpg" for number in range(1, 6001)]
    (root / "images.txt").write_text("\n".join(names))
    (root / "image_class_labels.txt").write_text("\n".join(f"{n} {(n - 1) // 30 + 1}" for n in range(1, 6001)))
    (root / "train_test_split.txt").write_text("\n".join(f"{n} 1" for n in range(1, 6001)))
    for number in range(1, 6001):
        (root / "images" / f"{number}.jpg").touch()
    benchmark_refused(
        "The set 'cub': with 2 of 200 classes known, 30 rows would be labelled and 5,970 not, where the paper has",
        "--data",
        "cub=cub",
        "--encoder",
        "colours",
        "--splits",
        listed([0, 1]),
    )
    assert embedded == []


# -- fine-tuning by the protocol ------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", ["per-class", "gcd"])
def test_fine_tuning_sees_only_the_labels_that_the_protocol_gives(tmp_path, monkeypatch, half):
    monkeypatch.chdir(tmp_path)
    make_cub(Path("CUB_200_2011"), n_classes=4, per_class=6)
    splits = gcds_list()
    items = protocol_items("cub=CUB_200_2011", splits, 3, half)
    whole = read_image_set("cub", Path("CUB_200_2011"))
    assert items.ids.tolist() == whole.ids.tolist()
    given = ~unlabelled_rows(items.labels)
    assert (items.labels[given] == whole.labels[given]).all()
    assert set(items.labels[given].tolist()) <= {1, 3}, "known classes alone"
    assert not given[items.split == "test"].any()
    # The very rows that the benchmark labels.
    stand_in = FeatureSet.from_arrays(np.ones((len(whole), 1)), labels=whole.labels, split=whole.split)
    parts = split_features(stand_in)
    case = make_case(parts, 3, known_classes("cub", splits), labelled_half=half)
    assert np.flatnonzero(given).tolist() == parts.rows[case.y >= 0].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "No images are given: give SOURCE, or --data NAME=FOLDER."),
        (("photos", "--data", "cub=birds"), "--data brings its own images and labels: leave out SOURCE"),
        (("--data", "cub"), "--data is 'cub': give NAME=FOLDER"),
        (("--data", "cup=birds"), "the data set 'cup' is unknown: did you mean cub?"),
        (("--data", "cub=birds", "--labelled-half", "half"), "--labelled-half 'half' is unknown"),
        (("--data", "cub=birds"), "The set 'cub' needs the list of its known classes"),
        (("photos", "--splits", "lists"), "--splits is for --data NAME=FOLDER: leave it out."),
    ],
)
def test_finetune_refuses_what_is_no_protocol(refused, arguments, message):
    refused(message, "finetune", *arguments, "-o", "tuned.safetensors")


def test_finetune_warns_that_all_labels_of_a_benchmark_folder_are_used(command, monkeypatch):
    make_cub(Path("CUB_200_2011"), n_classes=2)
    seen = []
    monkeypatch.setattr("rpim.embedding.open_encoder.open_encoder", lambda *_: None)
    monkeypatch.setattr("rpim.embedding.finetune.finetune", lambda items, *_, **__: seen.append(items.n_labelled))
    monkeypatch.setattr(
        "rpim.embedding.images.read_header",
        lambda _: {"tuning": {"skipped": [], "images": 0, "labelled": 0, "classes": 0, "losses": [(0, 0)]}},
    )
    code, _, err = command("finetune", "CUB_200_2011/images", "-o", "tuned.safetensors", "--quiet")
    assert (code, len(seen)) == (0, 1)
    assert "every image of CUB_200_2011/images is labelled, and all labels are used" in err
    assert "give --data NAME=FOLDER" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("half", "next_options"), [("per-class", "--seeds 3"), ("gcd", "--labelled-half gcd")], ids=["per-class", "gcd"]
)
def test_fine_tuning_by_the_protocol_to_its_end(command, monkeypatch, half, next_options):
    """The command that it names next benchmarks the tuned encoder on the same labels."""
    timm = library("timm")
    monkeypatch.setattr("rpim.embedding.tuning.HIDDEN", 32)
    save_file(timm.create_model("test_vit", num_classes=0).state_dict(), "vit.safetensors")
    make_cub(Path("CUB_200_2011"), n_classes=4, per_class=6)
    protocol = ("--data", "cub=CUB_200_2011", "--splits", str(gcds_list()))
    quick = ("--encoder", "test_vit", "--weights", "vit.safetensors", "--epochs", "1", "--batch-size", "8")
    given = ("--seed", "3", "--labelled-half", half, "--views", "0")
    code, out, _ = command("finetune", *protocol, *quick, *given, "-o", "tuned.safetensors")
    assert code == 0
    assert out.startswith("24 images, 6 of them with a label (2 classes).\n"), (
        "half of the known ones, none for testing"
    )
    *_, last = out.splitlines()
    shown = " ".join(protocol)
    assert last == f"Next: rpim benchmark {shown} {next_options} --encoder tuned.safetensors -o OUT"
    code, out, err = command(*last.split()[2:], "--methods", "kmeans", "--jobs", "1")
    assert (code, err) == (0, "")
    assert "methods saw its 24 rows called train alone; 4 called test were predicted afterwards" in out
