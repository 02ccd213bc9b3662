// SPDX-License-Identifier: Apache-2.0
//
// Makes small, valid ELF files for tests, which may then corrupt them.
#ifndef HEAPTAP_TESTS_UNIT_ELF_IMAGE_H_
#define HEAPTAP_TESTS_UNIT_ELF_IMAGE_H_

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/base/file_descriptor.h"

namespace heaptap::elf {

// The bytes of a plain structure.
template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline std::string Padded(std::string bytes, size_t alignment = 4) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  return bytes;
}

inline std::string Note(const std::string& owner, uint32_t type, const std::string& description) {
  Elf64_Nhdr header = {.n_namesz = static_cast<Elf64_Word>(owner.size()),
                       .n_descsz = static_cast<Elf64_Word>(description.size()),
                       .n_type = type};
  return BytesOf(header) + Padded(owner) + Padded(description);
}

// The note of one probe as <sys/sdt.h> writes it.
inline std::string ProbeNote(const std::string& provider, const std::string& name, const std::string& arguments,
                             uint64_t address, uint64_t semaphore = 0, uint64_t base = 0) {
  return Note(std::string("stapsdt\0", 8), 3,
              BytesOf(address) + BytesOf(base) + BytesOf(semaphore) + provider + '\0' + name + '\0' + arguments + '\0');
}

// One file. Its section and segment headers may be false.
class ElfImage {
 public:
  Elf64_Ehdr header = {};

  ElfImage() {
    header.e_ident[EI_MAG0] = ELFMAG0;
    header.e_ident[EI_MAG1] = ELFMAG1;
    header.e_ident[EI_MAG2] = ELFMAG2;
    header.e_ident[EI_MAG3] = ELFMAG3;
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_shentsize = sizeof(Elf64_Shdr);
    content_.resize(sizeof(header));
    AddSection("", SHT_NULL, "");
  }

  // Appends bytes and returns their file offset.
  uint64_t AddBytes(const std::string& bytes) {
    content_ = Padded(std::move(content_), 8);
    uint64_t offset = content_.size();
    content_ += bytes;
    return offset;
  }

  Elf64_Shdr& AddSection(const std::string& name, uint32_t type, const std::string& bytes, uint64_t address = 0) {
    Elf64_Shdr section = {};
    section.sh_name = static_cast<Elf64_Word>(names_.size());
    section.sh_type = type;
    section.sh_addr = address;
    section.sh_offset = AddBytes(bytes);
    section.sh_size = bytes.size();
    section.sh_addralign = 4;
    names_ += name + '\0';
    sections_.push_back(section);
    return sections_.back();
  }

  Elf64_Phdr& AddSegment(uint32_t type, uint32_t flags, uint64_t offset, uint64_t size, uint64_t address) {
    Elf64_Phdr segment = {};
    segment.p_type = type;
    segment.p_flags = flags;
    segment.p_offset = offset;
    segment.p_vaddr = address;
    segment.p_filesz = segment.p_memsz = size;
    segment.p_align = 4;
    segments_.push_back(segment);
    return segments_.back();
  }

  // The whole file.
  std::string Bytes() const {
    ElfImage image = *this;
    image.AddSection(".shstrtab", SHT_STRTAB, "");
    Elf64_Shdr& names = image.sections_.back();
    names.sh_offset = image.AddBytes(image.names_);
    names.sh_size = image.names_.size();
    image.header.e_shstrndx = static_cast<Elf64_Half>(image.sections_.size() - 1);
    image.header.e_shnum = static_cast<Elf64_Half>(image.sections_.size());
    image.header.e_phnum = static_cast<Elf64_Half>(image.segments_.size());
    std::string table;
    for (const Elf64_Phdr& segment : image.segments_) table += BytesOf(segment);
    image.header.e_phoff = image.AddBytes(table);
    table.clear();
    for (const Elf64_Shdr& section : image.sections_) table += BytesOf(section);
    image.header.e_shoff = image.AddBytes(table);
    image.content_.replace(0, sizeof(image.header), BytesOf(image.header));
    return image.content_;
  }

 private:
  std::string content_;
  std::string names_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Phdr> segments_;
};

// An anonymous file with these bytes.
inline base::FileDescriptor FileWith(const std::string& bytes) {
  base::FileDescriptor file(memfd_create("elf_image", MFD_CLOEXEC));
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t count = write(file.get(), bytes.data() + done, bytes.size() - done);
    if (count <= 0) return base::FileDescriptor();
    done += static_cast<size_t>(count);
  }
  return file;
}

}  // namespace heaptap::elf

#endif  // HEAPTAP_TESTS_UNIT_ELF_IMAGE_H_
