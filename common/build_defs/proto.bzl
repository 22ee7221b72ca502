"""C++ libraries from .proto files by the system's protoc: no download, no toolchain."""

load("//common/build_defs:precompiled.bzl", "precompiled_copts", "precompiled_deps")

def _generate(name, src, imports, outs, plugin_flags):
    native.genrule(
        name = name,
        srcs = [src] + imports,
        outs = outs,
        cmd = "protoc --proto_path=. {} $(location {})".format(plugin_flags, src),
        message = "Generating C++ from " + src,
    )

def capstan_proto_library(name, src, deps = [], imports = [], visibility = None):
    """Messages of one .proto file.

    Args:
      name: the library's name, conventionally <file>_proto.
      src: the .proto file.
      deps: capstan_proto_library targets of the files that it imports.
      imports: the .proto files that it imports, directly or not.
      visibility: as usual.
    """
    base = src[:-len(".proto")]
    _generate(
        name + "_generate",
        src,
        imports,
        [base + ".pb.h", base + ".pb.cc"],
        "--cpp_out=$(GENDIR)",
    )
    native.cc_library(
        name = name,
        srcs = [base + ".pb.cc"],
        hdrs = [base + ".pb.h"],
        copts = precompiled_copts("library_headers"),
        deps = deps + ["@protobuf//:protobuf"] + precompiled_deps("library_headers"),
        visibility = visibility,
    )

def capstan_grpc_library(name, src, proto, imports = [], visibility = None):
    """Service stubs of one .proto file; only shells may see such a target.

    Args:
      name: the library's name, conventionally <file>_grpc.
      src: the .proto file.
      proto: the capstan_proto_library of the same file.
      imports: the .proto files that it imports, directly or not.
      visibility: as usual.
    """
    base = src[:-len(".proto")]
    _generate(
        name + "_generate",
        src,
        imports,
        [base + ".grpc.pb.h", base + ".grpc.pb.cc"],
        "--grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=$$(command -v grpc_cpp_plugin)",
    )
    native.cc_library(
        name = name,
        srcs = [base + ".grpc.pb.cc"],
        hdrs = [base + ".grpc.pb.h"],
        copts = precompiled_copts("library_headers"),
        deps = [proto, "@grpc//:grpc++"] + precompiled_deps("library_headers"),
        visibility = visibility,
    )
