# A recipe for Spack. To use it: `spack repo create lyceum-repo`, copy this file to lyceum-repo/packages/lyceum/package.py,
# `spack repo add lyceum-repo`, then `spack dev-build lyceum@main` in the folder of the sources.
from spack.package import *


class Lyceum(CMakePackage, CudaPackage):
    """Trains sparse transformers (mixture-of-experts models and their relatives) on a cluster, started by mpirun."""

    homepage = "https://example.org/lyceum"  # until the project has a home page

    version("main")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("openmpi@4.1:")
    depends_on("hdf5@1.10: +hl ~mpi")
    depends_on("onednn@2.7:")
    depends_on("boost@1.74: +program_options")
    depends_on("fmt@9:")
    depends_on("googletest@1.12: +gmock")
    depends_on("sentencepiece@0.1.97:")
    depends_on("nlohmann-json@3.11:")
    depends_on("openssl@3:")
    depends_on("oniguruma@6.9:")
    depends_on("utf8proc@2.7:")
    depends_on("zlib-api")
    depends_on("zstd@1.5:")
    depends_on("cuda@12.8:", when="+cuda")
    depends_on("nccl@2.20:", when="+cuda")

    generator("ninja")

    def cmake_args(self):
        args = [self.define_from_variant("LYCEUM_CUDA", "cuda")]
        if self.spec.satisfies("+cuda"):
            # With PTX for the newest architecture, which later GPUs run.
            *older, newest = sorted(self.spec.variants["cuda_arch"].value, key=lambda arch: int(arch.rstrip("a")))
            architectures = [f"{arch}-real" for arch in older] + [newest if newest.isdigit() else f"{newest}-real"]
            args.append(self.define("LYCEUM_CUDA_ARCHITECTURES", architectures))
        return args
