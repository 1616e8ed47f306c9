# The quickest build of PyTorch, for --minimal: CMake includes this before anything of PyTorch's own.

# One CPU capability. Where the result of a check is known, FindAVX.cmake does not run it.
foreach(capability AVX2 AVX512)
  foreach(attempt 1 2 3)
    set(C_HAS_${capability}_${attempt} FALSE CACHE INTERNAL "")
    set(CXX_HAS_${capability}_${attempt} FALSE CACHE INTERNAL "")
  endforeach()
endforeach()

# Once the targets exist: no optimisation, whatever else asks for it, and headers that are parsed once.
# The kernels keep theirs, which CMake gives each file: so their times mean something.
function(_cheaper)
  set(CLAMPGRAD_MINIMAL ON CACHE INTERNAL "That this file was included.")
  foreach(target c10 torch_cpu torch_python onnx onnx_proto functorch)
    if(TARGET ${target})
      target_compile_options(${target} PRIVATE -O0)
    endif()
  endforeach()
  if(NOT USE_PRECOMPILED_HEADERS)
    return()
  endif()

  # Not for files that are optimised, or that define what these headers declare or call it by a name of
  # their own.
  get_target_property(sources torch_cpu SOURCES)
  list(FILTER sources INCLUDE REGEX
    "[.]DEFAULT[.]cpp$|/UfuncCPU_|/TensorMethods[.]cpp$|native/(PixelShuffle|TensorTransformations)[.]cpp$")
  if(NOT sources)
    message(FATAL_ERROR "--minimal does not know the kernels of this release: leave it out")
  endif()
  set_source_files_properties(${sources}
    TARGET_DIRECTORY torch_cpu PROPERTIES SKIP_PRECOMPILE_HEADERS ON)

  # Nothing that torchgen makes for autograd: a patch to a formula would compile everything again.
  foreach(header ATen/ATen.h torch/csrc/autograd/variable.h torch/csrc/jit/ir/ir.h)
    target_precompile_headers(torch_cpu PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${header}>")
  endforeach()
  foreach(header torch/csrc/python_headers.h ATen/ATen.h torch/csrc/jit/ir/ir.h torch/csrc/utils/pybind.h)
    target_precompile_headers(torch_python PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${header}>")
  endforeach()
endfunction()
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL _cheaper)
