# SPDX-License-Identifier: Apache-2.0
"""Spack's recipe. Copy it as `packages/py_paceline/package.py` into a Spack repository of a site.

It has not been installed by Spack yet. While Paceline is not on the index, install a checkout by
`spack develop -p CHECKOUT py-paceline@VERSION`; later, `spack checksum` adds releases.
"""

from spack.package import depends_on, license, variant, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyPaceline(PythonPackage):
    """Takes a PyTorch model that trains on one device to a cluster."""

    pypi = "paceline/paceline-0.1.0.tar.gz"

    license("Apache-2.0")

    version("0.1.0")

    variant("report", default=True, description="Pages, charts and PDF of runs")
    variant("parquet", default=False, description="Datasets in Parquet files")
    variant("s3", default=False, description="Datasets and runs in object stores")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-hatchling", type="build")

    with_run = ("build", "run")
    depends_on("py-torch@2.12:2.13+distributed", type=with_run)
    depends_on("py-numpy@1.26:", type=with_run)
    depends_on("py-scipy@1.11:", type=with_run)
    depends_on("py-fsspec@2024.6:", type=with_run)
    depends_on("py-pydantic@2.7:", type=with_run)
    depends_on("py-typer@0.15:", type=with_run)
    depends_on("py-rich@13:", type=with_run)
    depends_on("py-jinja2@3.1:", type=with_run)
    depends_on("py-psutil@6:", type=with_run)
    depends_on("py-safetensors@0.4.3:", type=with_run)
    depends_on("py-blake3@1.0:", type=with_run)
    depends_on("py-tomli-w@1.0:", type=with_run)

    depends_on("py-altair@5.4:", type="run", when="+report")
    depends_on("py-vl-convert-python@1.7:", type="run", when="+report")
    depends_on("py-pypdf@5:", type="run", when="+report")
    depends_on("py-pyarrow@17:", type="run", when="+parquet")
    depends_on("py-s3fs@2024.6:", type="run", when="+s3")
