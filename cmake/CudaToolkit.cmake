# The CUDA toolkit, or that there is none: which file stands behind core/exec/cuda.h.
#
#   CPSHARD_CUDA   AUTO: with a GPU executor where a toolkit is found; ON: missing is an error; OFF
#
# Sets CPSHARD_HAS_CUDA. The toolkit is needed at build time alone: its runtime is linked statically,
# and a program starts with and without a driver.

set(CPSHARD_CUDA_WAY_OUT "Give one with -DCMAKE_CUDA_COMPILER=.../bin/nvcc (12.8 or newer: PyPI has 13.0"
    " and newer, nvidia-cuda-nvcc, nvidia-cuda-crt, nvidia-nvvm, nvidia-cuda-runtime and nvidia-cuda-cccl), or"
    " configure with -DCPSHARD_CUDA=OFF")
list(JOIN CPSHARD_CUDA_WAY_OUT "" CPSHARD_CUDA_WAY_OUT)

# What stands against a GPU executor, in words; empty where nothing does.
function(cpshard_find_cuda obstacle)
  set(${obstacle} "" PARENT_SCOPE)
  if(CPSHARD_SANITIZE OR CPSHARD_FUZZ)
    set(${obstacle} "nvcc knows no sanitizers" PARENT_SCOPE)
    return()
  endif()
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDACXX ENV CUDA_PATH /usr/local/cuda
               PATH_SUFFIXES bin)
  if(NOT CMAKE_CUDA_COMPILER)
    set(${obstacle} "no nvcc found" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE answer ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" release "${answer}")
  if(release STREQUAL "")
    set(${obstacle} "${CMAKE_CUDA_COMPILER} is no nvcc that runs" PARENT_SCOPE)
  elseif(CMAKE_MATCH_1 VERSION_LESS 12.8)
    set(${obstacle} "${CMAKE_CUDA_COMPILER} is ${CMAKE_MATCH_1}, older than 12.8" PARENT_SCOPE)
  endif()
endfunction()

if(NOT CPSHARD_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "CPSHARD_CUDA=${CPSHARD_CUDA}: AUTO, ON or OFF")
endif()
set(CPSHARD_HAS_CUDA OFF)
if(CPSHARD_CUDA STREQUAL "OFF")
  message(STATUS "no GPU executor: CPSHARD_CUDA=OFF")
else()
  cpshard_find_cuda(CPSHARD_CUDA_OBSTACLE)
  if(CPSHARD_CUDA_OBSTACLE STREQUAL "")
    set(CPSHARD_HAS_CUDA ON)
  elseif(CPSHARD_CUDA STREQUAL "ON")
    message(FATAL_ERROR
            "CPSHARD_CUDA=ON, but ${CPSHARD_CUDA_OBSTACLE}. ${CPSHARD_CUDA_WAY_OUT}.")
  else()
    message(STATUS "no GPU executor: ${CPSHARD_CUDA_OBSTACLE}. ${CPSHARD_CUDA_WAY_OUT}.")
  endif()
endif()

set(CPSHARD_EXECUTORS "cpu")  # that programs of this build know
if(CPSHARD_HAS_CUDA)
  string(APPEND CPSHARD_EXECUTORS ", cuda")
  # Machine code for what is in use, and PTX of the newest for what comes after.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100 CACHE STRING "GPU generations to compile for")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(CPSHARD_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CPSHARD_CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
  # /usr/include as -isystem, which imported targets ask for, would hide it from #include_next.
  list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  message(STATUS "GPU executor for ${CMAKE_CUDA_ARCHITECTURES} with ${CMAKE_CUDA_COMPILER}"
                 " ${CMAKE_CUDA_COMPILER_VERSION}")
endif()
