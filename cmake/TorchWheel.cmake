# The torch of an installed Python wheel as imported targets, as small as can be: the two libraries
# that core/torch links and their headers. find_package(Torch) would bring global flags and, without
# a CUDA toolkit of the wheel's version, an error.
#
#   CPSHARD_TORCH   folder of the installed package (it holds include/ and lib/); empty = no torch

function(cpshard_torch_wheel folder)
  foreach(file include/torch/library.h lib/libc10.so lib/libtorch_cpu.so)
    if(NOT EXISTS ${folder}/${file})
      message(FATAL_ERROR "CPSHARD_TORCH=${folder} is no installed torch package: it has no ${file}."
                          " Give the folder that python -c 'import torch; print(torch.__path__[0])'"
                          " prints, or leave it empty to build without torch.")
    endif()
  endforeach()
  foreach(name c10 torch_cpu)
    add_library(torch_wheel::${name} SHARED IMPORTED GLOBAL)
    set_target_properties(torch_wheel::${name} PROPERTIES
                          IMPORTED_LOCATION ${folder}/lib/lib${name}.so)
  endforeach()
  # SYSTEM: no warnings of headers that are not ours. What libtorch_cpu.so itself needs is found by
  # its own run path when it is loaded; the linker need not look for it.
  target_include_directories(torch_wheel::c10 SYSTEM INTERFACE
                             ${folder}/include ${folder}/include/torch/csrc/api/include)
  target_compile_definitions(torch_wheel::c10 INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(torch_wheel::torch_cpu INTERFACE torch_wheel::c10)
  target_link_options(torch_wheel::torch_cpu INTERFACE LINKER:--allow-shlib-undefined)
endfunction()
