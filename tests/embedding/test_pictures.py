"""Pictures of every kind a folder may hold, and the form in which encoders take them."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest

from rpim.embedding.pictures import FORMATS, MAX_PIXELS, Preprocessing, Unusable, open_picture
from rpim.embedding.weights import library

Image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")


def stored(picture, form="PNG", **options):
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def colour(picture):
    return np.asarray(picture)[2, 3].tolist()


@pytest.fixture
def noise():
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 256, (90, 130, 3)).astype(np.uint8))


def test_kinds_of_colours_become_red_green_and_blue():
    red = Image.new("RGB", (8, 6), (255, 0, 0))
    palette = red.convert("P")
    assert colour(open_picture(stored(red))) == [255, 0, 0]
    assert colour(open_picture(stored(palette))) == [255, 0, 0]
    assert colour(open_picture(stored(palette, "GIF"))) == [255, 0, 0]
    assert colour(open_picture(stored(Image.new("L", (8, 6), 7)))) == [7, 7, 7]
    assert colour(open_picture(stored(Image.new("1", (8, 6), 1)))) == [255, 255, 255]
    r, g, b = colour(open_picture(stored(Image.new("CMYK", (8, 6), (0, 255, 255, 0)), "JPEG")))
    assert r > 200
    assert max(g, b) < 60


def test_what_is_transparent_becomes_white():
    assert colour(open_picture(stored(Image.new("RGBA", (8, 6), (0, 0, 255, 0))))) == [255, 255, 255]
    assert colour(open_picture(stored(Image.new("RGBA", (8, 6), (0, 0, 255, 255))))) == [0, 0, 255]


def test_greys_of_sixteen_bits_keep_their_shades():
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    greys = np.asarray(open_picture(stored(Image.fromarray(ramp))))[..., 0].ravel()
    assert greys[0] == 0
    assert greys[-1] == 255
    assert len(np.unique(greys)) > 200  # cut off at 255, nearly all would be white


def test_a_photograph_taken_sideways_is_put_upright():
    picture = Image.new("RGB", (40, 20), (255, 255, 255))
    exif = Image.Exif()
    exif[0x0112] = 6
    assert open_picture(stored(picture, "JPEG", exif=exif)).size == (20, 40)


def test_arrays_are_pictures():
    assert colour(open_picture(np.full((6, 8, 3), (1, 2, 3), dtype=np.uint8))) == [1, 2, 3]
    assert colour(open_picture(np.full((6, 8), 9, dtype=np.uint8))) == [9, 9, 9]


def test_what_cannot_be_read_says_why(tmp_path, noise):
    whole = stored(noise)
    with pytest.raises(Unusable, match="truncated"):
        open_picture(whole[: len(whole) // 2])
    for nothing in (b"", b"GIF89a", b"not a picture", b"\x89PNG\r\n\x1a\nnot a picture"):
        with pytest.raises(Unusable):
            open_picture(nothing)
    with pytest.raises(Unusable, match="No such file"):
        open_picture(tmp_path / "gone.png")
    with pytest.raises(Unusable, match="120 megapixels, and at most 89"):
        open_picture(stored(Image.new("1", (12_000, 10_000))))
    with pytest.raises(Unusable, match="megapixels"):  # beyond what Pillow itself opens
        open_picture(stored(Image.new("1", (20_000, 2 * MAX_PIXELS // 20_000 + 1))))


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 10 10
%%EndComments
(RAN) print
%%EOF
"""


def test_a_format_that_would_start_a_program_is_not_opened(tmp_path, monkeypatch):
    """Pillow draws an EPS by calling Ghostscript, whatever the file is called."""
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("a program was started"))
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a program was started"))
    (tmp_path / "holiday.jpg").write_bytes(EPS)
    for content in (tmp_path / "holiday.jpg", EPS):
        with pytest.raises(Unusable, match="it is no picture"):
            open_picture(content)
    for form in ("TGA", "PCX", "ICO", "SGI"):  # others that no suffix of ours stands for
        with pytest.raises(Unusable, match="it is no picture"):
            open_picture(stored(Image.new("RGB", (8, 6)), form))


@pytest.mark.parametrize("form", sorted({*FORMATS.values()}))
def test_formats_that_are_read_whatever_the_suffix(form, tmp_path):
    if form not in Image.registered_extensions().values():
        pytest.skip(f"this Pillow does not have {form}")
    (tmp_path / "a.png").write_bytes(stored(Image.new("RGB", (8, 6), (255, 0, 0)), form))
    r, g, b = colour(open_picture(tmp_path / "a.png"))
    assert r > 250
    assert max(g, b) < 5


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "zeros.png").symlink_to("/dev/zero")
    for name in ("zeros.png", "folder.png", "pipe.png"):  # to open the pipe would wait for ever
        with pytest.raises(Unusable, match="no regular file"):
            open_picture(tmp_path / name)


def limited(script):
    """Run a script in a process that may use 1.5 GB more than Python with its libraries; return what it printed."""
    start = (
        "import resource, io, numpy as np\n"
        "from PIL import Image\n"
        "from rpim.embedding.pictures import *\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 1_500_000_000,) * 2)\n"
        "def png(picture):\n"
        "    file = io.BytesIO(); picture.save(file, 'PNG'); return file.getvalue()\n"
    )
    made = subprocess.run([sys.executable, "-c", start + script], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited by setrlimit")
def test_memory_that_a_small_file_may_take(environment, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    sizes = ((60_000, 1), (1, 60_000), (10_000_000, 1))
    first = "print([Preprocessing()(png(Image.new('L', size, 77)))[0, 0, 0].item() for size in {sizes}])"
    deep = "Image.fromarray(np.full((9_000, 9_900), 65535, np.uint16))"
    then = f"\nprint(open_picture(png({deep})).getextrema())"
    assert limited(first.format(sizes=sizes) + then) == "[77, 77, 77]\n((255, 255), (255, 255), (255, 255))"


def test_the_middle_of_a_very_long_picture(monkeypatch):
    """The same as of the whole resized picture, but for rounding at the edges."""
    greys = np.random.default_rng(0).integers(0, 256, (40, 900, 3)).astype(np.uint8)
    for content in (greys, greys.transpose(1, 0, 2)):
        whole = Preprocessing(size=32)(content)
        monkeypatch.setattr("rpim.embedding.pictures.MAX_RESIZED", 100)
        middle = Preprocessing(size=32)(content)
        monkeypatch.undo()
        assert middle.shape == whole.shape
        assert np.corrcoef(middle.ravel(), whole.ravel())[0, 1] > 0.98


def test_bands_make_no_difference(monkeypatch, noise):
    ramp = np.linspace(0, 65535, 900).astype(np.uint16).reshape(30, 30)
    pictures = [Image.fromarray(ramp), noise.convert("P"), noise.convert("CMYK"), noise.convert("L")]
    pictures.append(Image.merge("RGBA", (*noise.split(), noise.convert("L"))))
    for picture in pictures:
        content = stored(picture, "TIFF")
        whole = np.asarray(open_picture(content))
        monkeypatch.setattr("rpim.embedding.pictures._BAND", 400)
        np.testing.assert_array_equal(np.asarray(open_picture(content)), whole)
        monkeypatch.undo()


def test_preprocessing_is_that_of_timm(noise):
    """Resize, cut the middle out, normalize: the same as the transformation that timm's models were evaluated with."""
    timm_data = library("timm.data")
    for size, crop in ((64, 0.875), (32, 1.0), (48, 0.9)):
        ours = Preprocessing(size=size, crop=crop)
        theirs = timm_data.create_transform(
            (3, size, size), interpolation="bicubic", crop_pct=crop, mean=ours.mean, std=ours.std
        )(noise).numpy()
        mean, std = (np.asarray(values)[:, None, None] for values in (ours.mean, ours.std))
        np.testing.assert_allclose((ours(stored(noise)) / 255 - mean) / std, theirs, atol=1e-5)


def test_a_large_jpeg_is_read_at_a_fraction_and_stays_alike():
    ramp = np.linspace(0, 255, 2400).astype(np.uint8)
    large = Image.fromarray(np.stack([np.tile(ramp, (1600, 1)), *np.full((2, 1600, 2400), 90, np.uint8)], axis=2))
    as_jpeg = stored(large, "JPEG", quality=95)
    assert min(open_picture(as_jpeg, 100).size) < 400
    difference = Preprocessing(size=64)(as_jpeg).astype(int) - Preprocessing(size=64)(stored(large))
    assert np.abs(difference).max() <= 6


def test_views_differ_and_repeat_by_their_seed(noise):
    prepare = Preprocessing(size=32)
    content = stored(noise)
    one, again, other = (prepare.augmented(content, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.shape == (3, 32, 32)
    np.testing.assert_array_equal(one, again)
    assert (one != other).mean() > 0.5


def test_preprocessing_survives_json():
    prepare = Preprocessing(size=96, mean=(0.1, 0.2, 0.3))
    assert Preprocessing.from_dict(prepare.as_dict()) == prepare
